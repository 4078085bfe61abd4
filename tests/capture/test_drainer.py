"""The drainer, fed with memory that the test has made."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.capture.drainer import Drainer
from layerscope.capture.rings import Columns, SpanSums
from layerscope.capture.rings import Ring as SeenRing
from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.rawfile.sums import RawTotals, rows_of
from layerscope.sources.raw.decoder import Decoder
from tests.capture.shared_memory import Names, Page, Ring, Session


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session()
    yield made
    made.close()


def chunks(raw: Path) -> list[raw_file.Chunk]:
    (file,) = raw.glob("*/spool")
    return list(raw_file.SpoolReader(file).chunks())


def ordinals(raw: Path, ring: int = 0) -> list[int]:
    """The `seq` of every record in the raw file: its place in the order of all that were ever
    written.
    """
    parts = [
        np.frombuffer(c.payload, dtypes.RECORD)["seq"]
        for c in chunks(raw)
        if c.kind == raw_file.RECORDS and c.key == ring
    ]
    found: list[int] = np.concatenate(parts).tolist() if parts else []
    return found


def decoded(raw: Path) -> Decoder:
    decoder = Decoder()
    for chunk in chunks(raw):
        decoder.add(chunk)
    return decoder


def test_records_names_and_open_spans_are_in_the_raw_file(tmp_path: Path, session: Session) -> None:
    page, ring, names = Page(lost_without_ring=3, agent_cpu_ns=77), Ring(), Names()
    names.add(1, "aten::add")
    ring.put(10)
    ring.open(1, -1, 1)
    ring.header["lost_full"], ring.header["lost_deep"] = 5, 2
    session.give_all(page, ring, names)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))
    decoder = decoded(tmp_path)

    assert ordinals(tmp_path) == list(range(10))
    assert decoder.names == ["(other names)", "aten::add"]
    spans = np.concatenate([part for _, part in decoder.batches(last=True)])
    assert spans["depth"][spans["unfinished"] == 1].tolist() == [0, 2]
    assert {loss.reason: loss.lost for loss in decoder.losses} == {
        "ring_full": 5,
        "too_deep": 2,
        "no_ring": 3,
    }
    assert decoder.final["agent_cpu_ns"] == 77
    assert decoder.ended
    assert int(ring.header["closed"][0]) == 1
    assert int(ring.header["consumed"][0]) == 10
    kinds = [chunk.kind for chunk in chunks(tmp_path)]
    assert (
        kinds.index(raw_file.NAMES)
        < kinds.index(raw_file.RECORDS)
        < kinds.index(raw_file.OPEN)
        < kinds.index(raw_file.END)
    )


@pytest.mark.parametrize(
    "first", [0, 5, layout.RING_RECORDS - 7, 3 * layout.RING_RECORDS, 2**33 + 11]
)
@pytest.mark.parametrize("count", [1, 7, 20, layout.RING_RECORDS])
def test_a_ring_that_goes_round_is_taken_in_order(
    tmp_path: Path, session: Session, first: int, count: int
) -> None:
    ring = Ring()
    ring.move_to(first)
    ring.put(count)
    session.give_all(Page(), ring)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))

    assert ordinals(tmp_path) == np.arange(first, first + count).astype(np.int32).tolist()
    (records,) = [chunk for chunk in chunks(tmp_path) if chunk.kind == raw_file.RECORDS]
    assert (records.first, records.count) == (first, count)


@given(st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=12))
def test_what_is_put_is_taken_once_whenever_the_drainer_looks(
    steps: list[tuple[int, bool]],
) -> None:
    ring = Ring()
    ring.move_to(layout.RING_RECORDS - 1000)
    seen = SeenRing(ring.fd)
    os.close(ring.fd)
    columns = Columns()
    taken: list[int] = []
    for made, looks in [*steps, (1, True)]:
        ring.put(made)
        if looks:
            end = seen.published
            rows = seen.rows(end)
            count = seen.take(end, columns)
            in_columns = np.frombuffer(columns.taken(count), np.uint8)
            assert in_columns.reshape(layout.RECORD_BYTES, count).T.tobytes() == rows
            taken += np.frombuffer(rows, dtypes.RECORD)["seq"].tolist()
            seen.set("consumed", end)

    first = layout.RING_RECORDS - 1000
    assert taken == list(range(first, first + len(taken)))
    assert len(taken) == sum(count for count, _ in steps) + 1


def test_two_processes_have_two_files(tmp_path: Path, session: Session) -> None:
    mine, other = Page(), Page(pid=os.getppid())
    rings = Ring(), Ring()
    session.give(layout.SEND_PROCESS, mine.fd)
    session.give(layout.SEND_RING, rings[0].fd)
    session.give(layout.SEND_PROCESS, other.fd, os.getppid())
    session.give(layout.SEND_RING, rings[1].fd, os.getppid())
    for ring, count in zip(rings, (3, 4), strict=True):
        ring.put(count)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))

    files = {path.parent.name.split("-")[-2]: path for path in tmp_path.glob("*/spool")}
    counts = {
        int(pid): sum(
            c.count for c in raw_file.SpoolReader(path).chunks() if c.kind == raw_file.RECORDS
        )
        for pid, path in files.items()
    }
    assert counts == {os.getpid(): 3, os.getppid(): 4}


def test_a_child_that_is_gone_before_anybody_looks_still_has_its_parent(
    tmp_path: Path, session: Session
) -> None:
    """/proc knows nothing of it any more; the agent has written its parent into the page."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    session.give(layout.SEND_PROCESS, Page(pid=child, ppid=77, command_line=b"python\0").fd, child)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))

    assert decoded(tmp_path).about["ppid"] == 77


def test_a_ring_of_an_unknown_process_is_no_harm(tmp_path: Path, session: Session) -> None:
    session.give(layout.SEND_RING, Ring().fd, pid=1)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))

    assert not list(tmp_path.glob("*/spool"))


def test_the_program_is_one_process_with_and_without_its_agent(
    tmp_path: Path, session: Session
) -> None:
    session.ours.send(json.dumps({"type": "main", "pid": os.getpid(), "start_ns": 5}).encode())
    ring = Ring()
    session.give_all(Page(clock_is_tsc=1, library="lib", command_line=b"python\0train.py\0"), ring)
    ring.put(2)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))
    decoder = decoded(tmp_path)

    assert decoder.about["argv"] == ["python", "train.py"]
    assert (decoder.about["clock"], decoder.about["start_ns"], decoder.records) == ("tsc", 5, 2)


def test_a_drainer_killed_before_it_could_say_so_is_followed_by_exact_sums(
    tmp_path: Path, session: Session
) -> None:
    """Its last chunk is in the file, but the ring still holds the same records."""
    page, ring = Page(), Ring()
    session.give_all(page, ring)
    ring.put(100)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))
    ring.header["consumed"] = 60
    ring.put(50)
    again = Session()
    again.give_all(page, ring)
    again.run_to_the_end(Drainer(again.theirs, tmp_path))
    decoder = decoded(tmp_path)

    assert decoder.records == 150
    assert int(decoder.totals[:, 2].sum()) == 150


def test_a_file_torn_by_a_kill_goes_on_behind_its_last_whole_chunk(
    tmp_path: Path, session: Session
) -> None:
    page, ring = Page(), Ring()
    session.give_all(page, ring)
    ring.put(100)
    session.run_to_the_end(Drainer(session.theirs, tmp_path))
    (file,) = tmp_path.glob("*/spool")
    with file.open("ab") as content:
        content.write(file.read_bytes()[:50])
    ring.put(10)
    again = Session()
    again.give_all(page, ring)
    again.run_to_the_end(Drainer(again.theirs, tmp_path))

    assert ordinals(tmp_path) == list(range(110))
    assert decoded(tmp_path).ended


class Disk:
    """Refuses chunks of some kinds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses: set[int] = set()
        self.write = raw_file.SpoolWriter.write
        monkeypatch.setattr(
            raw_file.SpoolWriter, "write", lambda *words, **more: self.take(*words, **more)
        )
        monkeypatch.setattr("layerscope.capture.drainer.DISK_RETRY_S", 0.0)

    def take(self, writer: raw_file.SpoolWriter, kind: int, *words: Any, **more: Any) -> None:
        if kind in self.refuses:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.write(writer, kind, *words, **more)


def test_what_a_full_disk_does_not_take_stays_in_the_ring_and_comes_later(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    drainer = Drainer(session.theirs, tmp_path)
    session.theirs.settimeout(0)
    ring, names = Ring(), Names()
    session.give_all(Page(), ring, names)
    assert drainer._receive()
    (process,) = drainer.processes.values()
    disk.refuses = {raw_file.RECORDS, raw_file.NAMES}
    names.add(1, "late")
    ring.put(10)
    drainer._drain(process, True)
    assert int(ring.header["consumed"][0]) == 0
    disk.refuses = {raw_file.RECORDS}
    drainer._drain(process, True)
    assert int(ring.header["consumed"][0]) == 0
    disk.refuses = set()
    ring.put(5)
    session.run_to_the_end(drainer)
    decoder = decoded(tmp_path)

    assert ordinals(tmp_path) == list(range(15))
    assert decoder.names[1] == "late"
    assert not decoder.losses


@pytest.mark.parametrize("kind", [raw_file.TOTALS, raw_file.LOSS, raw_file.OPEN, raw_file.END])
def test_a_last_word_that_does_not_fit_is_said_again_in_full(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    disk = Disk(monkeypatch)
    drainer = Drainer(session.theirs, tmp_path)
    session.theirs.settimeout(0)
    ring = Ring()
    ring.put(10)
    ring.open(1)
    ring.header["lost_full"] = 4
    session.give_all(Page(), ring)
    assert drainer._receive()
    (process,) = drainer.processes.values()
    drainer._drain(process, True)
    disk.refuses = {kind}
    assert drainer._finish(process) is False
    disk.refuses = set()
    session.run_to_the_end(drainer)
    decoder = decoded(tmp_path)

    assert int(decoder.totals[:, 2].sum()) == decoder.records == 10
    assert [(loss.reason in ("ring_full", "disk_full"), loss.lost) for loss in decoder.losses] == [
        (True, 4)
    ]
    spans = np.concatenate([part for _, part in decoder.batches(last=True)])
    assert int(spans["unfinished"].sum()) == 1
    assert decoder.ended


records = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(0, 2000), st.integers(0, 2**62), st.integers(0, 2**40)
    ),
    max_size=60,
)


@given(st.lists(records, max_size=5))
def test_running_totals_are_exact(parts: list[list[tuple[int, int, int, int]]]) -> None:
    totals, counted = RawTotals(), SpanSums()
    expected: dict[tuple[int, int], list[int]] = {}
    for part in parts:
        rows = np.zeros(len(part) + 2, dtypes.RECORD)
        rows["kind"][-2:] = [layout.LOST, layout.EXTRA]
        for i, (kind, name, start, ticks) in enumerate(part):
            rows[i] = (start, start + ticks, name, 0, 0, 0, kind, 0)
            sums = expected.setdefault((kind, name), [0, 0])
            sums[0] += 1
            sums[1] += ticks
        totals.add(rows)
        counted.add(rows.tobytes())
    assert sorted(rows_of(counted.packed()).tolist()) == sorted(rows_of(totals.packed()).tolist())
    packed = np.frombuffer(totals.packed(), "<i8").reshape(-1, 4).tolist()

    assert {(kind, name): [count, ticks] for kind, name, count, ticks in packed} == expected


@given(records, records)
def test_totals_go_on_from_what_was_written_and_know_what_is_missing(
    first: list[tuple[int, int, int, int]], later: list[tuple[int, int, int, int]]
) -> None:
    parts = []
    for part in (first, later):
        rows = np.zeros(len(part), dtypes.RECORD)
        for i, (kind, name, start, ticks) in enumerate(part):
            rows[i] = (start, start + ticks, name, 0, 0, 0, kind, 0)
        parts.append(rows)
    whole, restored, seen = RawTotals(), RawTotals(), RawTotals()
    for rows in parts:
        whole.add(rows)
    before = RawTotals()
    before.add(parts[0])
    sums = SpanSums()
    sums.restore(before.packed())
    sums.add(parts[1].tobytes())
    assert sorted(rows_of(sums.packed()).tolist()) == sorted(rows_of(whole.packed()).tolist())
    restored.restore(before.packed())
    restored.add(parts[1])
    seen.add(parts[1])

    assert restored.packed() == whole.packed()
    assert seen.missing_from(whole.packed()).tolist() == rows_of(before.packed()).tolist()


def test_the_drainer_starts_without_the_libraries_of_tables() -> None:
    code = (
        "import sys, layerscope.capture.drainer; print(*{'pyarrow', 'duckdb'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""

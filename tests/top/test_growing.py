"""The law of increments: however a recording grows, what is added up is what its tables say at the
end.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.analyse import tables
from layerscope.analyse.live.program import LiveProgram
from layerscope.ingest.live.buckets import Spread
from layerscope.ingest.live.recording import LiveRecording
from layerscope.model.live import BUCKET_NS, SUMS, Increment, Known
from layerscope.recording.reader import Reader
from tests.recorded import Recorded
from tests.replayed import RECORDINGS, replay

WINDOW_NS = 5_000_000_000
Sums = dict[tuple[str, ...], list[int]]


class Growing:
    """The raw folder of a golden recording of which only the beginnings of the files are there."""

    def __init__(self, name: str, folder: Path) -> None:
        self.source = RECORDINGS / name / "raw"
        self.raw = folder / "raw"
        self.raw.mkdir()
        self.files = [
            path.relative_to(self.source)
            for path in sorted(self.source.rglob("*"))
            if path.is_file()
        ]

    def grow(self, share: float) -> None:
        """Let every file have this share of its bytes; JSON is there from the start."""
        for name in self.files:
            data = (self.source / name).read_bytes()
            size = len(data) if name.suffix == ".json" else round(len(data) * share)
            (self.raw / name).parent.mkdir(exist_ok=True)
            with (self.raw / name).open("ab") as file:
                file.write(data[file.tell() : size])


def shares(pieces: int) -> Iterator[float]:
    """Ascending shares at random cuts, the whole at the end."""
    chance = random.Random(pieces)
    yield from sorted(chance.random() for _ in range(pieces))
    yield 1.0


def watched(name: str, folder: Path, pieces: int, names_only: bool = False) -> LiveProgram:
    """What a recording adds up to that grew in so many pieces."""
    growing = Growing(name, folder)
    with LiveRecording(growing.raw, WINDOW_NS, names_only) as recording:
        program = LiveProgram(recording.known, 0, WINDOW_NS)
        for share in shares(pieces):
            growing.grow(share)
            program.add(recording.advance(last=share == 1.0))
    return program


def sums_of(program: LiveProgram, table: str) -> Sums:
    """By label what the whole of a table is, without rows of nothing."""
    found: Sums = defaultdict(lambda: [0] * len(SUMS[table]))
    for label, values in zip(
        program.known.labels[table], program.sums(table).whole.tolist(), strict=False
    ):
        found[label] = [a + b for a, b in zip(found[label], values, strict=True)]
    return {label: values for label, values in found.items() if any(values)}


def table_of(recorded: Recorded, name: str) -> list[dict[str, Any]]:
    with Reader(recorded.run) as reader:
        return tables.build(reader, name).data.to_pylist()


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return replay("train", tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return replay("threads", tmp_path_factory.mktemp("threads"))


@pytest.mark.parametrize("pieces", [0, 1, 7, 60])
def test_operators_are_those_of_the_finished_recording(
    pieces: int, train: Recorded, tmp_path: Path
) -> None:
    program = watched("train", tmp_path, pieces)

    rows = train.rows(
        "SELECT name, kind, sum(count)::BIGINT AS n, sum(total_ns)::BIGINT AS total, "
        "sum(self_ns)::BIGINT AS self FROM totals WHERE layer = 'operators' GROUP BY ALL"
    )
    assert sums_of(program, "operators") == {
        (row["name"], row["kind"]): [row["n"], row["total"], row["self"]] for row in rows
    }


@pytest.mark.parametrize("pieces", [0, 25])
def test_primitives_are_those_of_the_finished_recording(
    pieces: int, train: Recorded, tmp_path: Path
) -> None:
    program = watched("train", tmp_path, pieces)

    found = sums_of(program, "primitives")
    assert {label: values[:2] for label, values in found.items()} == {
        (row["name"], row["implementation"], row["kind"]): [row["count"], row["total_ns"]]
        for row in table_of(train, "primitives")
    }


@pytest.mark.parametrize("pieces", [0, 1, 7, 60])
@pytest.mark.parametrize("table", ["functions", "symbols"])
def test_functions_are_those_of_the_finished_recording(
    table: str, pieces: int, threads: Recorded, tmp_path: Path
) -> None:
    program = watched("threads", tmp_path, pieces)

    place = "file" if table == "functions" else "object"
    rows = {
        (row["name"], row[place] or ""): [row["self_ns"], row["total_ns"], row["wait_ns"]]
        for row in table_of(threads, table)
    }
    found = {label: values[:3] for label, values in sums_of(program, table).items()}
    assert found == {label: values for label, values in rows.items() if any(values)}


@pytest.mark.parametrize("table", ["functions", "symbols"])
def test_without_debugging_information_the_time_is_the_same(
    table: str, threads: Recorded, tmp_path: Path
) -> None:
    program = watched("threads", tmp_path, 5, names_only=True)

    rows = table_of(threads, table)
    whole = program.sums(table).whole
    assert whole[:, 0].sum() == sum(row["self_ns"] for row in rows)
    assert whole[:, 2].sum() == sum(row["wait_ns"] for row in rows)


@pytest.mark.parametrize("pieces", [0, 40])
def test_waits_and_threads_are_those_of_the_finished_recording(
    pieces: int, threads: Recorded, tmp_path: Path
) -> None:
    program = watched("threads", tmp_path, pieces)

    by_state: dict[str, int] = defaultdict(int)
    for (state, _), (_, total_ns) in sums_of(program, "waits").items():
        by_state[state] += total_ns
    rows = threads.rows(
        "SELECT CASE WHEN idle THEN 'idle' ELSE state END AS state, sum(weight_ns)::BIGINT AS ns "
        "FROM samples WHERE kind = 'offcpu' GROUP BY 1"
    )
    assert by_state == {row["state"]: row["ns"] for row in rows}
    rows = threads.rows(
        "SELECT tid, sum(weight_ns) FILTER (samples.kind = 'cpu')::BIGINT AS ns, "
        "coalesce(any_value(delay_ns), 0)::BIGINT AS delay FROM samples JOIN tracks USING (track) GROUP BY tid"
    )
    of_threads = sums_of(program, "threads")
    found = {int(label[0].split()[-1]): values[:2] for label, values in of_threads.items()}
    assert found == {row["tid"]: [row["ns"], row["delay"]] for row in rows}


def test_steps_are_those_of_the_finished_recording(train: Recorded, tmp_path: Path) -> None:
    steps = watched("train", tmp_path, 12).facts().steps

    rows = train.rows("SELECT start_ns + dur_ns AS end_ns FROM steps ORDER BY step")
    ends = [row["end_ns"] for row in rows]
    assert (steps.rule, steps.count) == ("optimizer", len(ends))
    assert steps.step_ns == (ends[-1] - ends[0]) // (len(ends) - 1)


def test_the_window_holds_the_last_seconds_alone(tmp_path: Path) -> None:
    growing = Growing("threads", tmp_path)
    growing.grow(1.0)
    window_ns = 350_000_000
    with LiveRecording(growing.raw, window_ns) as recording:
        program = LiveProgram(recording.known, 0, window_ns)
        program.add(recording.advance(last=True))

    threads = program.sums("threads")
    assert 0 < threads.recent[:, 0].sum() < threads.whole[:, 0].sum()
    assert (threads.recent <= threads.whole).all()
    # It computes for a second, the second half of it in NumPy, and then waits.
    names = [label[0] for label in program.known.labels["functions"]]
    functions = dict(zip(names, program.sums("functions").recent[:, 0].tolist(), strict=False))
    assert functions["in_python"] == 0


def test_what_is_read_piece_by_piece_is_the_same(tmp_path: Path) -> None:
    """Of a long recording the screen comes before all is read."""
    growing = Growing("train", tmp_path)
    growing.grow(1.0)
    with LiveRecording(growing.raw, WINDOW_NS) as recording:
        program = LiveProgram(recording.known, 0, WINDOW_NS)
        shares = []
        while not shares or shares[-1] < 1:
            increment = recording.advance(last=True, deadline=0.0)
            program.add(increment)
            shares.append(increment.read_share)

    assert len(shares) > 1
    (tmp_path / "whole").mkdir()
    whole = watched("train", tmp_path / "whole", 0)
    assert sums_of(program, "operators") == sums_of(whole, "operators")


def test_counting_anew_forgets_what_was(tmp_path: Path) -> None:
    program = watched("train", tmp_path, 3)
    assert sums_of(program, "operators")

    program.reset()

    assert sums_of(program, "operators") == {}
    assert program.facts().steps.count == 0


def test_a_segment_that_is_stripped_meanwhile_is_read_to_its_end(tmp_path: Path) -> None:
    """The converter puts another file in the place of one that it has read."""
    growing = Growing("train", tmp_path)
    growing.grow(0.5)
    (spool,) = growing.raw.glob("*/spool")
    with LiveRecording(growing.raw, WINDOW_NS) as recording:
        program = LiveProgram(recording.known, 0, WINDOW_NS)
        program.add(recording.advance())
        growing.grow(1.0)
        replacement = spool.with_name("stripped")
        shutil.copy(spool, replacement)
        replacement.write_bytes(b"")
        replacement.rename(spool)
        program.add(recording.advance(last=True))

    (tmp_path / "whole").mkdir()
    assert sums_of(program, "operators") == sums_of(
        watched("train", tmp_path / "whole", 0), "operators"
    )


@pytest.mark.parametrize("pieces", [9, 40])
def test_no_thread_waits_longer_than_the_window_is(pieces: int, tmp_path: Path) -> None:
    """Of a wait that began before the window only what lies in it counts there."""
    growing = Growing("threads", tmp_path)
    window_ns = 250_000_000
    most_ns = 0
    with LiveRecording(growing.raw, window_ns) as recording:
        program = LiveProgram(recording.known, 0, window_ns)
        for share in shares(pieces):
            growing.grow(share)
            program.add(recording.advance(last=share == 1.0))
            recent = program.sums("threads").recent
            of_window_ns = program.facts().window_ns
            # A thread runs, waits or has no work.
            assert (recent[:, [0, 2, 3]].sum(axis=1) <= of_window_ns * 1.05).all()
            most_ns = max(most_ns, int(recent[:, 2].max(initial=0)))

    assert most_ns > window_ns / 2


def test_an_interval_is_cut_at_the_ends_of_buckets() -> None:
    begin_ns = np.array([0, BUCKET_NS - 10, 5 * BUCKET_NS, 7], np.int64)
    end_ns = np.array([4 * BUCKET_NS, BUCKET_NS + 30, 6 * BUCKET_NS, 7], np.int64)
    spread = Spread(begin_ns, end_ns, oldest=1)

    parts = zip(
        spread.row.tolist(),
        spread.bucket.tolist(),
        spread.parts(end_ns - begin_ns).tolist(),
        spread.is_last.tolist(),
        strict=True,
    )
    assert list(parts) == [
        (0, 1, 2 * BUCKET_NS, False),  # what lies before the oldest bucket counts in it
        (0, 2, BUCKET_NS, False),
        (0, 3, BUCKET_NS, True),
        (1, 1, 40, True),
        (2, 5, BUCKET_NS, True),
        (3, 1, 0, True),
    ]
    assert spread.parts(np.array([3, 1, 0, 0])).tolist() == [2, 0, 1, 1, 0, 0]


def test_many_steps_of_a_window_have_the_time_of_all() -> None:
    ends = np.arange(0, 20 * WINDOW_NS, WINDOW_NS // 20_000)
    known = Known()
    program = LiveProgram(known, 0, WINDOW_NS)
    for part in np.array_split(ends, 50):
        program.add(Increment(int(part[-1]), step_ends={"mark": part}))

    steps = program.facts().steps
    assert (steps.count, steps.step_ns) == (len(ends), WINDOW_NS // 20_000)

"""Segments of a framework's own profiler become tables while the program runs, the same ones as when
all of it is converted after its end.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest import conversion as conversion_module
from layerscope.ingest.conversion import RunConversion, conversion_of_raw
from layerscope.ingest.limits import IngestLimits
from layerscope.recording.run import Run
from layerscope.sources.raw import late_stream
from tests.ingest.raw_file import REALTIME_OFFSET_NS, TASK, RawFile
from tests.ingest.test_convert_growing import convert, differences, tables
from tests.recordings import MS, run_info
from tests.sources.test_xplane import Plane, message

PID, WORKER = 100, 171
# A segment takes 70 ms, and 30 ms behind it nothing is recorded.
EVERY_NS, LASTS_NS = 100 * MS, 70 * MS
CALLS = 8


class ProfiledProgram:
    """A program that is profiled, in `raw`: moments are ns of the run."""

    def __init__(self, raw: Path) -> None:
        self.raw = raw
        self.file = RawFile(raw, PID)
        self.file.poll(0)
        self.file.records(1, self.file.thread_begin(1, PID, 1))
        self.file.threads({PID: "main"})
        self.tasks: list[Any] = []
        self.conversion: RunConversion | None = None

    def tell(self, number: int, **about: Any) -> None:
        """Write what is known of a segment; of number 0, of the process."""
        told = {"format": "xplane_recorded", "pid": PID, **about}
        path = self.raw / f"xplane_recorded-{PID}-{number}.profile"
        path.write_text(json.dumps(told))

    def compile(self, begin_ns: int, end_ns: int, size: int) -> None:
        """A compilation has ended."""
        moments = REALTIME_OFFSET_NS + begin_ns, REALTIME_OFFSET_NS + end_ns
        self.tasks.append(["compile jit(step)", PID, *moments, [["x", f"float32[{size}]"]]])
        self.tell(0, tasks=self.tasks)

    def begin(self, number: int) -> None:
        """A segment begins."""
        begun_ns = REALTIME_OFFSET_NS + number * EVERY_NS
        self.tell(number, is_whole=True, begun_realtime_ns=begun_ns)

    def end(self, number: int, name: str = "step", takes: int = 1) -> None:
        """It has ended: what was recorded of it, `CALLS` calls of a function."""
        begun_ns = REALTIME_OFFSET_NS + number * EVERY_NS
        environment, host = Plane("Task Environment"), Plane("/host:CPU")
        environment.own.append(environment.stat("profile_start_time", begun_ns))
        call = f"PjitFunction({name})"
        calls = [host.event("layerscope thread", MS, 10, tid=PID)]
        work = []
        for at in range(CALLS):
            start_ns = (2 + 8 * at) * MS
            calls.append(host.event(call, start_ns, 4 * takes * MS))
            calls.append(host.event("Execute", start_ns + MS, takes * MS))
            hlo = {"hlo_op": f"dot.{at % 3}", "hlo_module": "jit_step", "run_id": at}
            work.append(host.event(f"dot.{at % 3}", start_ns + 2 * MS, 3 * MS, **hlo))
        host.line(77, "python", 0, *calls)
        host.line(78, "tf_XLAEigen/-5", 0, *work)
        content = message(*((1, one.content()) for one in (environment, host)))
        (self.raw / f"xplane_recorded-{PID}-{number}_segment.pb").write_bytes(content)
        ended_ns = begun_ns + LASTS_NS
        moments = {"begun_realtime_ns": begun_ns, "ended_realtime_ns": ended_ns}
        self.tell(number, is_whole=True, threads={"78": WORKER}, **moments)

    def record(self, number: int, *records: list[tuple]) -> None:
        """What the agent recorded during a segment, up to behind its end."""
        for one in records:
            self.file.records(1, one)
        self.file.sample(number * EVERY_NS + LASTS_NS - 1, number)
        self.file.poll((number + 1) * EVERY_NS - MS)

    def task(self, number: int, from_ms: int, to_ms: int) -> list[tuple]:
        """A task of the program, by when it began and ended in a segment."""
        begun_ns = number * EVERY_NS
        return self.file.span(begun_ns + from_ms * MS, begun_ns + to_ms * MS, 0, "epoch", TASK)

    def look(self) -> None:
        """Somebody converts what is there."""
        assert self.conversion is not None
        while self.conversion.source.read_ahead():
            self.conversion.advance()
        self.conversion.advance()


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProfiledProgram:
    """A program of which nothing was recorded so far, that is converted while it runs, in small
    parts.
    """
    monkeypatch.setattr(conversion_module, "BATCH_RECORDS", 1)
    limits = IngestLimits(epoch_spans=10)
    monkeypatch.setattr(conversion_module, "limits_of", lambda *_: limits)
    run = Run.create(tmp_path / "grown", run_info())
    program = ProfiledProgram(run.raw)
    program.conversion = conversion_of_raw(run.raw, run.tables_path, follows=True)
    program.look()
    return program


def rows(program: ProfiledProgram) -> int:
    """Spans that are in tables."""
    assert program.conversion is not None
    return program.conversion.parts.rows


def run_three(program: ProfiledProgram) -> list[int]:
    """Run a program of three segments; how many spans were known behind each of them."""
    known = []
    for number in range(1, 4):
        program.compile(number * EVERY_NS - 20 * MS, number * EVERY_NS - 10 * MS, number)
        program.begin(number)
        program.look()
        program.record(number, program.task(number, 10, 30), program.task(number, 42, 70))
        program.look()
        program.end(number)
        program.look()
        known.append(rows(program))
    program.file.end(4 * EVERY_NS)
    return known


def test_tables_of_segments_are_the_same_beside_the_program_and_after_it(
    growing: ProfiledProgram, tmp_path: Path
) -> None:
    known = run_three(growing)
    of_segment = 3 * CALLS
    assert of_segment // 2 < known[0] < known[1] - of_segment // 2 < known[2] - of_segment

    assert growing.conversion is not None
    growing.conversion.finish({})
    assert not growing.conversion.is_wrong
    grown = tables(Run.open(tmp_path / "grown"))
    whole = convert(growing.raw, tmp_path / "whole")
    assert differences(grown, whole) == []
    steps, gaps = whole[5], whole[4]
    assert len(steps) == 3 * CALLS
    # Calls begin every 8 ms; the last one of a segment ends with it.
    assert [round(row["dur_ns"] / MS) for row in steps[:CALLS]] == [8] * (CALLS - 1) + [12]
    assert len(gaps) == 3
    inside = {row["depth"] for row in whole[0] if row["name"].startswith("Pjit")}
    assert inside == {0, 1}


def test_the_open_segment_is_waited_for(growing: ProfiledProgram) -> None:
    growing.begin(1)
    growing.record(1, growing.task(1, 10, 30))
    growing.look()
    assert rows(growing) == 0
    growing.end(1)
    growing.look()
    assert rows(growing) > 2 * CALLS


def test_what_ends_later_around_given_spans_has_all_read_anew(growing: ProfiledProgram) -> None:
    for number in (1, 2):
        growing.begin(number)
        growing.record(number)
        growing.end(number)
        growing.look()
    assert growing.conversion is not None
    assert not growing.conversion.is_wrong

    growing.record(3, growing.file.span(EVERY_NS, 3 * EVERY_NS, 0, "everything", TASK))
    growing.look()

    assert growing.conversion.is_wrong


def test_another_loop_has_all_read_anew_with_it(growing: ProfiledProgram, tmp_path: Path) -> None:
    growing.begin(1)
    growing.record(1)
    growing.end(1, "prepare")
    growing.look()
    growing.begin(2)
    growing.record(2)
    growing.end(2, "train", takes=2)
    growing.look()
    assert growing.conversion is not None
    assert growing.conversion.is_wrong
    loop = growing.conversion.source.loop
    assert loop == "PjitFunction(train)"

    run = Run.create(tmp_path / "again", run_info())
    shutil.copytree(growing.raw, run.raw, dirs_exist_ok=True)
    again = conversion_of_raw(run.raw, run.tables_path, follows=True, loop=loop)
    again.advance()
    while again.source.read_ahead():
        again.advance()
    again.finish({})

    assert not again.is_wrong
    assert len(tables(run)[5]) == CALLS


def test_more_names_than_there_is_room_for_have_all_read_anew(
    growing: ProfiledProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_stream, "_FIRST_TEXT", 4)
    for number in (1, 2):
        names = [f"range {number} {at}" for at in range(3 * number)]
        start_ns = (number * 100 + 80) * MS
        spans = [growing.file.span(start_ns, start_ns + 1, 0, name, TASK) for name in names]
        growing.begin(number)
        growing.look()
        growing.record(number, *spans)
        growing.end(number)
        growing.look()
    growing.file.end(3 * EVERY_NS)

    assert growing.conversion is not None
    growing.look()
    assert growing.conversion.is_wrong
    monkeypatch.undo()
    whole = convert(growing.raw, tmp_path / "whole")
    assert len({row["name"] for row in whole[0] if row["name"].startswith("range")}) == 9


def test_a_segment_that_never_ended_is_lost(growing: ProfiledProgram, tmp_path: Path) -> None:
    growing.begin(1)
    growing.record(1)
    growing.end(1)
    growing.look()
    growing.begin(2)
    growing.record(2)
    growing.look()
    growing.file.end(3 * EVERY_NS)

    assert growing.conversion is not None
    growing.conversion.finish({})

    found = tables(Run.open(tmp_path / "grown"))
    assert "profile_lost" in {row["code"] for row in found[8]}
    assert differences(found, convert(growing.raw, tmp_path / "whole")) == []

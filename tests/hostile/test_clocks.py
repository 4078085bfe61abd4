"""Clocks that are set while the program runs: the wall clock, the clock of another namespace, and a
wrong TSC.

No test may set the clock of the machine that it runs on. The readings and ticks of a real recording
are rewritten as a machine with that fault would have written them, and the recording is converted
again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.ingest.open import open_run
from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.recording.run import Run
from tests.differential import PROGRAMS, Differential
from tests.hostile.case import Case
from tests.hostile.settings import namespace
from tests.recorded import ask, layerscope

pytestmark = pytest.mark.slow
DAY_S = 86_400
ROUNDS, PER_ROUND = 25, 200
PROGRAM = f"""
import sys; sys.path.append({str(PROGRAMS)!r})
import facts, time
from torch.profiler import record_function
for number in range({ROUNDS}):
    with record_function(f"round {{number:02}}"):
        facts.work({PER_ROUND})
    time.sleep(0.06)
"""
Change = Callable[[np.ndarray, int], np.ndarray]
CHANGES: dict[str, Change] = {
    "jumps ahead": lambda ticks, middle: ticks + np.where(ticks > middle, 10**12, 0),
    "runs faster": lambda ticks, middle: np.where(
        ticks > middle, middle + (ticks - middle) * 3 // 2, ticks
    ),
    "runs slower": lambda ticks, middle: np.where(
        ticks > middle, middle + (ticks - middle) // 3, ticks
    ),
    "is set back": lambda ticks, middle: ticks - np.where(ticks > middle, 10**9, 0),
    "begins anew": lambda ticks, middle: ticks - np.where(ticks > middle, middle, 0),
}
SET_BACK = ("is set back", "begins anew")


@pytest.fixture(scope="module")
def healthy(
    tmp_path_factory: pytest.TempPathFactory, program_python: str, native_agent: Path
) -> Path:
    """A recording of some seconds with the TSC as its clock."""
    differential = Differential(tmp_path_factory.mktemp("healthy"))
    outcome = differential.record([program_python, "-c", PROGRAM])
    assert (outcome.status, outcome.stderr) == (0, b"")
    clock = ask(
        open_run(differential.recording),
        "SELECT count(*) AS n FROM clock_readings WHERE clock = 'tsc'",
    )
    if not clock[0]["n"] or not _uses_tsc(differential.recording):
        pytest.skip("the time stamp counter is no clock on this machine")
    return differential.recording


def _uses_tsc(recording: Path) -> bool:
    return any(b'"tsc"' in chunk.payload for path in raw_file.spools(recording / "raw")
               for chunk in raw_file.SpoolReader(path).chunks([raw_file.PROCESS]))  # fmt: skip


def rewritten(
    recording: Path, into: Path, change: Callable[[list[raw_file.Chunk]], list[raw_file.Chunk]]
) -> Run:
    """A copy of `recording` whose raw files hold what `change` makes of their chunks, converted
    again.
    """
    shutil.copytree(recording, into)
    (into / "tables.json").unlink()
    for path in raw_file.spools(into / "raw"):
        chunks = list(raw_file.SpoolReader(path).chunks())
        path.unlink()
        writer = raw_file.SpoolWriter(path)
        for chunk in change(chunks):
            writer.write(chunk.kind, chunk.payload, chunk.key, chunk.count, chunk.first)
        writer.close()
    return open_run(into)


def with_payload(chunk: raw_file.Chunk, payload: np.ndarray) -> raw_file.Chunk:
    return raw_file.Chunk(chunk.kind, chunk.key, chunk.count, chunk.first, payload.tobytes())


def ticks_changed(chunks: list[raw_file.Chunk], change: Change) -> list[raw_file.Chunk]:
    """What a machine would have written whose counter does what `change` says, from the middle of
    the records on.
    """
    records = [
        np.frombuffer(chunk.payload, dtypes.RECORD)
        for chunk in chunks
        if chunk.kind == raw_file.RECORDS
    ]
    middle = int(
        np.median(
            np.concatenate([rows["end"][rows["kind"] < layout.FIRST_SPECIAL] for rows in records])
        )
    )
    return [_tick_changed(chunk, change, middle) for chunk in chunks]


def _tick_changed(chunk: raw_file.Chunk, change: Change, middle: int) -> raw_file.Chunk:
    if chunk.kind == raw_file.POLL:
        reading = np.frombuffer(chunk.payload, "<i8").copy()
        reading[:1] = change(reading[:1], middle)
        return with_payload(chunk, reading)
    if chunk.kind != raw_file.RECORDS:
        return chunk
    rows = np.frombuffer(chunk.payload, dtypes.RECORD).copy()
    spans = rows["kind"] < layout.FIRST_SPECIAL
    begins = spans | (rows["kind"] == layout.THREAD_BEGIN) | (rows["kind"] == layout.THREAD_END)
    for column, chosen in (("start", begins), ("end", spans)):
        rows[column][chosen] = change(rows[column][chosen].astype(np.int64), middle)
    return with_payload(chunk, rows)


def rounds(run: Run) -> list[dict[str, Any]]:
    """Per range of the program, in its own order: its start, its end, and the operators inside of
    it.
    """
    return ask(
        run,
        "SELECT r.name, r.start_ns, r.start_ns + r.dur_ns AS end_ns, count(o.span) AS inside FROM spans r "
        "JOIN spans o ON o.parent = r.span AND o.name = 'aten::hypot' WHERE r.name LIKE 'round %' GROUP BY ALL "
        "ORDER BY r.name",
    )


def problem(run: Run) -> dict[str, Any]:
    (row,) = ask(run, "SELECT code, what, remedy, lost FROM problems")
    return row


def test_a_healthy_counter_is_not_doubted(healthy: Path) -> None:
    assert ask(open_run(healthy), "SELECT * FROM problems") == []


@pytest.mark.parametrize("how", CHANGES)
def test_a_wrong_counter_keeps_the_order_of_things_and_is_said(
    how: str, healthy: Path, tmp_path: Path
) -> None:
    right = rounds(open_run(healthy))
    run = rewritten(
        healthy, tmp_path / "wrong.layerscope", lambda chunks: ticks_changed(chunks, CHANGES[how])
    )

    found = rounds(run)
    assert [row["name"] for row in found] == [row["name"] for row in right]
    assert [row["inside"] for row in found] == [PER_ROUND] * ROUNDS
    moments = [moment for row in found for moment in (row["start_ns"], row["end_ns"])]
    assert moments == sorted(moments)
    # Between two readings of the clocks, 0.2 s, nothing is known of a jump.
    for row, true in zip(found, right, strict=True):
        assert abs(row["start_ns"] - true["start_ns"]) < 1_000_000_000
    assert ask(run, "SELECT count(*) AS n FROM spans WHERE dur_ns < 0 OR self_ns < 0") == [{"n": 0}]
    told = problem(run)
    assert told["code"] == "clock_wrong"
    assert ("was set back 1 time" if how in SET_BACK else "did not keep its rate") in told["what"]
    assert "tsc=unstable" in told["remedy"]


@pytest.mark.parametrize("shift_s", [3600, -3600])
def test_a_wall_clock_that_is_set_changes_no_time(
    shift_s: int, healthy: Path, tmp_path: Path
) -> None:
    """Times are on CLOCK_MONOTONIC; an export, which has the wall clock's, says by how much it was
    set.
    """

    def change(chunks: list[raw_file.Chunk]) -> list[raw_file.Chunk]:
        polls = [index for index, chunk in enumerate(chunks) if chunk.kind == raw_file.POLL]
        for index in polls[len(polls) // 2 :]:
            reading = np.frombuffer(chunks[index].payload, "<i8").copy()
            reading[2] += shift_s * 10**9
            chunks[index] = with_payload(chunks[index], reading)
        return chunks

    run = rewritten(healthy, tmp_path / "set.layerscope", change)

    assert rounds(run) == rounds(open_run(healthy))
    assert ask(run, "SELECT * FROM problems") == []
    done = layerscope("export", str(tmp_path / "set.layerscope"), "trace.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The wall clock was set by 3,600 s" in done.stdout + done.stderr


def without_counter(case: Case) -> None:
    """From now on as on a machine whose kernel does not trust the counter."""
    script = Path(case.layerscope[-1])
    start, _, end = script.read_text().partition("from layerscope.cli")
    patch = (
        "import layerscope.capture.recorder as recorder\nrecorder.tsc_is_usable = lambda: False\n"
    )
    script.write_text(f"{start}{patch}from layerscope.cli{end}")


def test_a_machine_without_the_counter(case: Case) -> None:
    """Times come from CLOCK_MONOTONIC."""
    without_counter(case)

    recorded = case.complete(case.both())

    assert not _uses_tsc(case.recording)
    late = "SELECT count(*) AS n FROM spans WHERE start_ns + dur_ns > (SELECT max(end_ns) FROM processes)"
    assert recorded.rows(late) == [{"n": 0}]


def test_a_program_whose_clock_is_a_day_ahead(case: Case) -> None:
    """In a time namespace, and without the counter, which no namespace shifts."""
    within = namespace("--time", "--monotonic", str(DAY_S), "--boottime", str(DAY_S), "--fork")
    without_counter(case)

    recorded = case.complete(case.both(within=within))

    late = "SELECT count(*) AS n FROM spans WHERE start_ns + dur_ns > (SELECT max(end_ns) FROM processes)"
    assert recorded.rows(late) == [{"n": 0}]

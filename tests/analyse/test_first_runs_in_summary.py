"""Operators of the first runs alone: they are shown, whatever the profiler made of those runs."""

from __future__ import annotations

from pathlib import Path

from layerscope.analyse.summary import summarise
from layerscope.model.events import FIRST_RUNS
from layerscope.recording.reader import Reader
from tests.recordings import MS, Recording


def test_operators_are_shown_though_all_runs_that_have_some_are_warm_up(tmp_path: Path) -> None:
    recording = Recording()
    for step in range(1_000):
        is_profiled = step < 100  # and takes three times as long
        dur_ns = 3 * MS if is_profiled else MS
        recording.add_step(
            step, 10 * step * MS, (0, dur_ns, 0, 0, 0), rule="request", warmup=is_profiled
        )
        if is_profiled:
            recording.add_span("Conv", 10 * step * MS, 2 * MS, step=step)
    recording.add_problem("operators", "it ended", "nothing", "many", code=FIRST_RUNS)

    with Reader(recording.write(tmp_path / "recording")) as reader:
        found = summarise(reader)

    assert found.steps is not None
    assert (found.steps.measured, found.steps.mean_ns) == (900, MS)
    assert (found.steps.detailed, found.steps.detailed_ns) == (97, 3 * MS)
    assert found.operators is not None
    (conv,) = found.operators.rows
    assert (conv.name, conv.calls, conv.self_ns) == ("Conv", 1, 2 * MS)

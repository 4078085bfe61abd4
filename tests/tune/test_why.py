"""Why one setting is better: known recordings give known sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.recording.reader import Reader
from layerscope.tune import why
from tests.recordings import MS, Recording

SPIN = (
    "python main train.py:5",
    "operators aten::conv2d",
    "native gomp_team_barrier_wait_end /opt/torch/lib/libgomp.so.1",
)
WORK = ("python main train.py:5", "operators aten::conv2d", "native gemm libtorch_cpu.so")
YIELD = ("python main train.py:5", "native __sched_yield libc.so.6")
STEPS = 10


def figures(
    folder: Path, spin_ms: int, wait_ms: int = 0, yield_ms: int = 0, has_steps: bool = True
) -> why.Figures:
    """Steps of 100 ms, the first one warm-up with ten times as much of everything."""
    recording = Recording()
    for step in range(STEPS):
        start, times = step * 100 * MS, 1 if step else 10
        if has_steps:
            recording.add_step(step, start, (0, 60 * MS, 30 * MS, 10 * MS, 0), warmup=step == 0)
        about = {"at_ns": start + MS, "step": step if has_steps else None}
        recording.add_sample(recording.add_stack(*WORK), 20 * MS * times, **about)
        for stack, weight_ms in ((SPIN, spin_ms), (YIELD, yield_ms)):
            if weight_ms:
                recording.add_sample(recording.add_stack(*stack), weight_ms * MS * times, **about)
        if wait_ms:
            recording.add_sample(
                recording.add_stack(*SPIN),
                wait_ms * MS * times,
                kind="offcpu",
                state="barrier",
                exact=True,
                **about,
            )
    recording.add_primitive("reorder", 5 * MS, 2 * MS)
    run = recording.write(folder / f"{spin_ms}-{wait_ms}-{yield_ms}.layerscope")
    with Reader(run) as reader:
        return why.figures(reader)


def test_figures_are_those_of_a_step_without_warm_up(tmp_path: Path) -> None:
    found = figures(tmp_path, spin_ms=40, wait_ms=7, yield_ms=3)
    assert found.per_step
    assert found.dur_ns == 100 * MS
    assert found.spin_ns == pytest.approx(40 * MS)
    assert found.yield_ns == pytest.approx(3 * MS)
    assert found.waits_ns == {"barrier": pytest.approx(7 * MS)}
    assert found.reorder_ns == pytest.approx(2 * MS / STEPS)


def test_what_differs_is_said_with_figures_the_largest_first(tmp_path: Path) -> None:
    default, tuned = figures(tmp_path, 41, wait_ms=9, yield_ms=2), figures(tmp_path, 1)
    assert why.sentences(default, tuned) == [
        "A step spends 41.0 ms of CPU time in the runtime of OpenMP, where threads spin until others come, by default "
        "and 1.00 ms so.",
        "In a step threads wait 9.00 ms at barriers of OpenMP by default and 0 ns so.",
    ]


def test_where_nothing_differs_that_is_said(tmp_path: Path) -> None:
    default, tuned = figures(tmp_path, 10), figures(tmp_path, 11)
    assert why.sentences(default, tuned) == [
        "A step does nothing that differs visibly: the recordings do not show why."
    ]


def test_without_steps_it_is_the_whole_run(tmp_path: Path) -> None:
    found = figures(tmp_path, 5, has_steps=False)
    assert not found.per_step
    assert found.spin_ns == pytest.approx((STEPS + 9) * 5 * MS)
    assert why.sentences(found, figures(tmp_path, 6))[0].startswith(
        "Only one of the two recordings has steps"
    )


def test_counts_are_told_when_they_are_many_and_much_more() -> None:
    one = why.Figures(True, 100 * MS, faults=1455.0, switches=100.0)
    other = why.Figures(True, 100 * MS, faults=15.0, switches=90.0)
    assert why.sentences(one, other) == ["A step has 1,455 page faults by default and 15 so."]
    few = why.Figures(True, 100 * MS, faults=4.0, switches=0.5)
    assert why.sentences(few, why.Figures(True, 100 * MS, faults=0.0, switches=0.1))[0].startswith(
        "A step does nothing"
    )

"""Which calls are a loop, segment by segment."""

from __future__ import annotations

import numpy as np

from layerscope.model.layers import KINDS
from layerscope.sources.raw.late_spans import LateSpans
from layerscope.sources.raw.loops import Loops

Call = tuple[str, int, int]


def segment(*calls: Call, step_mark: str = "", **executed_ns: int) -> LateSpans:
    """Calls on one thread: name, start and duration; by name how long what they ask for took."""
    names = sorted({name for name, _, _ in calls})
    start_ns = np.array([start for _, start, _ in calls])
    count = len(calls)
    return LateSpans(
        track=np.zeros(count, np.int32), start_ns=start_ns,
        end_ns=start_ns + np.array([dur for _, _, dur in calls]), depth=np.zeros(count, np.int32),
        kind=np.full(count, KINDS.index("function"), np.uint8),
        name=np.array([names.index(name) for name, _, _ in calls]), args=np.full(count, -1),
        texts=names, step_mark=step_mark,
        calls={name: executed_ns.get(name, 0) for name in names},
    )  # fmt: skip


def every(name: str, count: int, dur: int, since: int = 0) -> list[Call]:
    return [(name, since + 100 * at, dur) for at in range(count)]


def test_fewer_than_five_calls_are_none() -> None:
    loops = Loops()
    loops.add(segment(*every("step", 4, 50)))
    assert loops.step_mark == ""
    loops.add(segment(*every("step", 1, 50)))
    assert loops.step_mark == "step"


def test_compilations_and_what_lies_in_other_calls_do_not_count() -> None:
    loops = Loops()
    compiled = [("prepare", 0, 9_000), ("prepare", 10_000, 8_000), ("prepare", 20_000, 7_000)]
    inner = every("traced", 80, 90, since=100)
    loops.add(segment(*compiled, *inner, *every("prepare", 4, 2, since=30_000)))
    assert loops.step_mark == "prepare"
    loops.add(segment(*every("step", 30, 10, since=40_000)))
    assert loops.step_mark == "step"


def test_what_calls_ask_for_counts_where_they_return_before_it_is_executed() -> None:
    loops = Loops()
    loops.add(segment(*every("prepare", 30, 20), *every("step", 30, 10, since=4_000)))
    assert loops.step_mark == "prepare"
    loops.add(segment(*every("step", 1, 10), step=9_000))
    assert loops.step_mark == "step"


def test_what_the_program_calls_its_steps_comes_first() -> None:
    loops = Loops()
    loops.add(segment(*every("step", 9, 50)))
    loops.add(segment(*every("step", 9, 50), step_mark="train"))
    assert loops.step_mark == "train"

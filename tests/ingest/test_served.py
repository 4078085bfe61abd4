"""Requests that are answered at the same time: each is a step, with its own calls."""

from __future__ import annotations

import numpy as np

from layerscope.ingest.live.steps import StepEnds
from layerscope.ingest.steps import ProcessSteps, SpanColumns, find_steps
from layerscope.model.layers import KINDS

TASK, MODULE, OPTIMIZER = (KINDS.index(kind) for kind in ("task", "module", "optimizer"))
NAME = "Optimizer.step#SGD.step"  # of all spans
LOOP, FIRST, SECOND = 0, 5, 6  # a thread, and two tracks of requests
# Track, kind, start, end. A call lies on the track of the request that it answers.
Row = tuple[int, int, int, int]
AT_ONCE: list[Row] = [
    (FIRST, TASK, 0, 100),
    (SECOND, TASK, 10, 90),
    (FIRST, TASK, 120, 200),
    (FIRST, MODULE, 20, 30),
    (SECOND, MODULE, 40, 60),
    (LOOP, MODULE, 70, 80),
    (FIRST, MODULE, 130, 150),
]


def steps_of(rows: list[Row], mark: str = "") -> ProcessSteps:
    track, kind, start, end = np.array(rows).T
    return find_steps(
        SpanColumns(
            track=track.astype(np.int32),
            depth=np.zeros(len(rows), np.int32),
            start_ns=start,
            dur_ns=end - start,
            kind=kind.astype(np.uint8),
            name=np.zeros(len(rows), np.int32),
            names=[NAME],
            optimizer=np.full(len(rows), -1, np.int32),
            step_mark=mark,
            request_tracks=np.array([FIRST, SECOND], np.int32),
        )
    )


def test_requests_that_overlap_have_the_time_in_their_own_calls() -> None:
    found = steps_of(AT_ONCE)
    assert found.rule == "served"
    assert found.start_ns.tolist() == [0, 10, 120]
    assert found.dur_ns.tolist() == [100, 80, 80]
    assert found.forward_ns.tolist() == [10, 20, 20]


def test_a_call_in_no_request_belongs_to_none_of_several() -> None:
    found = steps_of(AT_ONCE)
    times, tracks = np.array([25, 45, 75, 140]), np.array([FIRST, SECOND, LOOP, FIRST])
    step, _ = found.assign(times, tracks.astype(np.int32))
    assert step.tolist() == [0, 1, -1, 2]


def test_requests_one_after_the_other_have_all_that_runs_meanwhile() -> None:
    one_by_one = [row for row in AT_ONCE if row[0] != SECOND]
    found = steps_of(one_by_one)
    assert found.forward_ns.tolist() == [20, 20]
    step, _ = found.assign(np.array([75, 110, 140]), np.full(3, LOOP, np.int32))
    assert step.tolist() == [0, -1, 1]


def test_a_program_that_trains_has_steps_whatever_it_serves() -> None:
    training: list[Row] = [(LOOP, OPTIMIZER, 50, 60), (LOOP, OPTIMIZER, 150, 160)]
    assert steps_of([*AT_ONCE, *training]).rule == "optimizer"


def test_marked_ranges_that_cross_on_one_thread_are_all_steps() -> None:
    crossing: list[Row] = [(LOOP, TASK, 0, 50), (LOOP, TASK, 20, 70), (LOOP, TASK, 60, 90)]
    found = steps_of(crossing, NAME)
    assert (found.rule, found.dur_ns.tolist()) == ("mark", [50, 50, 30])
    nested: list[Row] = [(LOOP, TASK, 0, 50), (LOOP, TASK, 20, 40), (LOOP, TASK, 60, 90)]
    assert steps_of(nested, NAME).dur_ns.tolist() == [50, 30]


def test_while_a_program_runs_requests_of_all_tracks_are_counted() -> None:
    ends = StepEnds()
    ends.add_requests(np.array([10, 30]))
    ends.add_requests(np.array([20]))
    assert {rule: times.tolist() for rule, times in ends.take().items()} == {"served": [10, 30, 20]}
    assert ends.take() == {}

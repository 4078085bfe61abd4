"""Steps that the program marks, or the user by the name of a span."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from layerscope.ingest.steps import find_steps
from tests.analyse.traces import Trace, check_laws, check_truth, make_columns
from tests.ingest.test_steps import SPAN


def bounds(trace: Trace) -> list[tuple[int, int]]:
    steps = find_steps(trace.columns())
    check_laws(steps)
    assert steps.rule == "mark"
    return list(zip(steps.start_ns.tolist(), (steps.start_ns + steps.dur_ns).tolist(), strict=True))


@pytest.mark.parametrize("loads", [True, False])
def test_marks_end_steps_whatever_the_optimizer_does(loads: bool) -> None:
    trace = Trace(network="Net")
    trace.ops(6)  # the parameters: in no step, because the other steps have fewer spans
    trace.begin_step()
    for _ in trace.load(6) if loads else range(6):
        for _inner in range(2):
            trace.forward_backward()
            trace.optimizer_step()
        trace.mark()
        trace.end_step()
        trace.tick(3)
    assert len(check_truth(trace, "mark")) == 6


def test_a_program_without_operators_begins_its_first_step_with_its_first_task() -> None:
    tasks = [(1, 0, start, 5, "task", "work", -1) for start in (10, 20, 30)]
    marks = {"marks_ns": np.array([18, 28, 38]), "marks_track": np.array([1, 1, 1], np.int32)}
    steps = find_steps(replace(make_columns(tasks), **marks))
    check_laws(steps)
    assert list(zip(steps.start_ns.tolist(), steps.dur_ns.tolist(), strict=True)) == [
        (10, 8),
        (18, 10),
        (28, 10),
    ]


def test_marks_of_other_threads_do_not_count() -> None:
    trace = Trace()
    for _ in range(3):
        with trace.step():
            with trace.phase("forward"):
                trace.ops()
            with trace.on(5):
                trace.tick()
            trace.mark()
        with trace.on(5):
            trace.mark()
    check_truth(trace, "mark")


def test_marks_before_anything_ran_begin_the_first_step() -> None:
    trace = Trace()
    with trace.span("range", "main"):
        trace.mark()
        trace.begin_step()
        for _ in range(3):
            with trace.phase("forward"):
                trace.ops()
            trace.mark()
            trace.end_step()
    steps = find_steps(trace.columns())
    assert list(zip(steps.start_ns, steps.start_ns + steps.dur_ns, strict=True)) == trace.steps


def test_one_mark_before_everything_is_no_step_and_the_next_rule_is_taken() -> None:
    trace = Trace()
    trace.mark()
    for _ in range(3):
        with trace.step():
            trace.call("Net")
        trace.tick(2)
    check_truth(trace, "request")


def test_marks_on_a_thread_without_spans() -> None:
    trace = Trace(track=40)
    for _ in range(3):
        trace.mark()
        trace.tick(5)
    assert bounds(trace) == [(1_000, 1_005), (1_005, 1_010)]


@pytest.mark.parametrize("kind", ["range", "task", "module"])
def test_a_range_of_the_name_is_a_step(kind: str) -> None:
    trace = Trace(step_mark="iteration")
    for _ in range(4):
        trace.tick(3)
        with trace.step(), trace.span(kind, "iteration"):
            trace.forward_backward()
            trace.optimizer_step()
            if kind == "range":
                with trace.span(kind, "iteration"):
                    trace.tick()
    assert len(check_truth(trace, "mark")) == 4


def test_ranges_of_the_name_on_several_threads() -> None:
    trace = Trace(step_mark="handle")
    for number in range(6):
        trace.spans.append((number % 2, 0, 1_000 + 5 * number, 8, "range", "handle", -1))
    steps = find_steps(trace.columns())
    check_laws(steps)
    assert (steps.rule, len(steps), sorted(steps.lanes)) == ("mark", 6, [0, 1])
    assert steps.assign(np.array([1_006, 1_006]), np.array([0, 1], np.int32))[0].tolist() == [0, 1]


def test_an_operator_of_the_name_begins_a_step() -> None:
    trace = Trace(step_mark="aten::uniform_")
    trace.ops(3)
    for _ in range(4):
        with trace.step(), trace.phase("forward"):
            trace.op("aten::uniform_")
            trace.ops(2)
    check_truth(trace, "mark")


def test_the_second_optimizer_of_a_gan_can_be_chosen() -> None:
    trace = Trace(step_mark="Optimizer.step#SGD.step")
    for _ in trace.load(4):
        trace.forward_backward()
        trace.optimizer_step(3, "Adam")
        for _inner in range(2):
            trace.forward_backward()
            trace.optimizer_step(1, "SGD")
            trace.end_step()
    steps = check_truth(trace, "mark")
    assert (len(steps), steps.optimizer) == (8, 1)


def test_the_loader_can_be_chosen_where_an_optimizer_steps() -> None:
    trace = Trace()
    for batch in trace.load(4):
        trace.forward_backward()
        if batch % 2:
            trace.optimizer_step()
    trace.step_mark = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert len(bounds(trace)) == 4


def test_a_name_that_nothing_has_leaves_the_choice_to_the_other_rules() -> None:
    trace = Trace(step_mark="iteratoin")
    for _ in trace.load(3):
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
    check_truth(trace)


@given(
    st.lists(SPAN, max_size=30),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 4)), max_size=6),
    st.sampled_from(["", "aten::mm", "Optimizer.step#A.step", "nothing"]),
)
def test_law_any_marks(
    spans: list[tuple[int, int, int, int, str, str, int]], marks: list[tuple[int, int]], name: str
) -> None:
    columns = make_columns(spans)
    columns.marks_ns = np.array([at_ns for at_ns, _ in marks], np.int64)
    columns.marks_track = np.array([track for _, track in marks], np.int32)
    columns.step_mark = name
    steps = find_steps(columns)
    check_laws(steps)
    assert steps.rule == "mark" or name not in columns.names
    assert (len(steps) == 0) == (steps.rule == "none")

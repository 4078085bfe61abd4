"""Phases of synthetic loops, compared with the truth to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from layerscope.ingest.phases import told_timeline
from layerscope.ingest.steps import find_steps
from layerscope.model.layers import PHASES
from tests.analyse.traces import NODE, Trace, assert_assigns_truth, check_truth


def test_operators_between_two_loaders_are_forward_and_not_evaluation() -> None:
    trace = Trace()
    trace.begin_step()
    for _ in range(4):
        trace.wait(("aten::stack",))
        with trace.phase("forward"):
            trace.ops(3)
        trace.wait(("aten::stack",))
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
        trace.tick(2)
    check_truth(trace)


def test_closure() -> None:
    trace = Trace()

    def closure() -> None:
        trace.zero_grad("LBFGS")
        trace.forward_backward()

    def twice() -> None:
        closure()
        trace.ops(3)  # the line search: not forward
        closure()

    trace.ops(7)
    trace.begin_step()
    for _ in range(4):
        trace.optimizer_step(0, "LBFGS", closure=twice)
        trace.end_step()
        trace.tick(4)
    check_truth(trace)


def test_closure_that_clears_the_gradients_after_its_forward_pass() -> None:
    trace = Trace()
    for _ in range(4):
        trace.optimizer_step(closure=lambda: trace.forward_backward(trace.zero_grad))
        trace.end_step()
        trace.tick(4)
    check_truth(trace)


def test_logging_after_the_optimizer_step_is_not_forward() -> None:
    trace = Trace()
    for _ in trace.load(4):
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
        trace.tick(5)
        trace.op("aten::item")
    check_truth(trace)


@pytest.mark.parametrize("closure", [True, False])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("engine_kind", ["function", "backward"])
def test_backward_on_threads_of_the_autograd_engine(
    closure: bool, fused: bool, engine_kind: str
) -> None:
    trace = Trace(engine_kind=engine_kind)

    def forward_backward() -> None:
        with trace.phase("forward"):
            trace.ops()
            trace.op("aten::ones_like")
            trace.tick(4)
        with trace.on(9):
            trace.backward(in_last=trace.optimizer_step if fused else lambda: None)

    for _ in trace.load(3):
        if closure and not fused:
            trace.optimizer_step(closure=forward_backward)
        else:
            forward_backward()
            if not fused:
                trace.optimizer_step()
        trace.end_step()
    assert check_truth(trace).track == 0


def beside(spans_of: Callable[[int], list[tuple[int, int, int, int, str, str, int]]]) -> Trace:
    """Three steps whose backward pass of 30 ns runs on other threads: `spans_of` its beginning."""
    trace = Trace()
    for _ in range(3):
        with trace.step():
            with trace.phase("forward"):
                trace.ops()
            begin = trace.now
            with trace.phase("backward"):
                trace.tick(30)
            trace.spans += spans_of(begin)
            trace.optimizer_step()
    return trace


def test_backward_passes_overlapping_on_two_devices_are_one() -> None:
    trace = beside(
        lambda begin: [
            (8, 0, begin, 15, "backward", NODE, -1),
            (9, 0, begin + 10, 20, "backward", NODE, -1),
            (8, 0, begin + 16, 2, "backward", NODE, -1),
        ]
    )
    check_truth(trace)


def test_gradients_that_are_copied_between_autograd_spans_are_of_the_backward_pass() -> None:
    """As DistributedDataParallel does it on the thread of a GPU: half of what runs there."""
    copy = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
    trace = beside(
        lambda begin: [
            (9, 0, begin, 10, "backward", NODE, -1),
            (9, 0, begin + 11, 2, "function", copy, -1),
            (9, 0, begin + 14, 2, "function", "aten::as_strided", -1),
            (9, 0, begin + 20, 10, "backward", NODE, -1),
            (9, 0, begin + 30, 1, "function", copy, -1),
        ]
    )
    assert check_truth(trace).track == 0


def test_a_second_trainer_without_an_optimizer_is_no_worker() -> None:
    """Half of what runs on its thread is a backward pass, and half a forward one."""
    trace = Trace()
    for _ in range(3):
        with trace.step():
            with trace.phase("forward"):
                trace.ops()
            begin = trace.now
            with trace.phase("backward"):
                trace.backward()
            trace.spans += [
                (9, 0, begin + 1, 2, "function", "aten::mm", -1),
                (9, 0, begin + 4, 2, "backward", NODE, -1),
            ]
            trace.optimizer_step()
    found = check_truth(trace)
    assert found.track == 0


def test_ranges_of_the_user_change_nothing() -> None:
    trace = Trace()
    with trace.span("range", "everything"):
        trace.tick(3)
        for batch in trace.load(3):
            with trace.span("range", f"step {batch}"):
                with trace.phase("forward"), trace.span("range", "forward"):
                    pass
                del trace.truth[-2:]
                trace.truth += ["other"] * 2
                trace.forward_backward()
                trace.optimizer_step()
                trace.end_step()
    check_truth(trace)


def test_nested_backward_of_a_checkpoint_is_backward() -> None:
    trace = Trace()

    def recompute() -> None:
        trace.ops()
        trace.backward()

    for _ in trace.load(3):
        with trace.phase("forward"):
            trace.ops()
        trace.backward(in_last=recompute)
        trace.optimizer_step()
        trace.end_step()
    check_truth(trace)


def test_engine_span_is_backward_whatever_its_kind() -> None:
    trace = Trace(engine_kind="backward")
    for _ in trace.load(3):
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
    check_truth(trace)


def test_gradient_penalty_has_two_backward_passes() -> None:
    trace = Trace()
    for _ in trace.load(3):
        trace.forward_backward()
        trace.tick(2)
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
    check_truth(trace)


def test_backward_passes_without_operators_between_them_are_two_where_something_else_is() -> None:
    trace = Trace()
    for _ in range(3):
        trace.backward()
        trace.tick(3)
        trace.wait(())
        trace.tick(3)
        trace.backward()
        trace.tick(3)
        trace.zero_grad()
        trace.tick(3)
        trace.backward()
        trace.optimizer_step()
    assert_assigns_truth(trace, find_steps(trace.columns()))


def test_operators_that_tell_what_they_belong_to_are_phases_wherever_they_are_executed() -> None:
    begin, end = np.array([0, 100]), np.array([100, 200])
    forward = np.array([10, 110]), np.array([40, 140])
    backward = np.array([30, 130, 160]), np.array([60, 150, 170])
    waits = np.array([95]), np.array([100])

    timeline, spent = told_timeline(forward, backward, waits, begin, end)

    by_phase = dict(zip(PHASES, spent.tolist(), strict=True))
    assert by_phase["forward"] == [20, 20]
    assert by_phase["backward"] == [30, 30]
    assert by_phase["loading"] == [5, 0]
    assert by_phase["other"] == [45, 50]
    _, phase = timeline.at(np.array([35, 155]))
    assert [PHASES[one] for one in phase.tolist()] == ["backward", "other"]

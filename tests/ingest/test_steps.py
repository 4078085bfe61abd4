"""Steps of synthetic loops with a known number of iterations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.steps import ProcessSteps, find_steps
from layerscope.model.layers import KINDS
from tests.analyse.traces import (
    SINGLE,
    WORKERS,
    Trace,
    assert_assigns_truth,
    check_laws,
    check_truth,
    make_columns,
    phase_columns,
    programs,
)


@pytest.mark.parametrize("place", ["first", "before backward", "last"])
def test_training_loop(place: str) -> None:
    trace = Trace()
    trace.ops(5)  # the parameters
    for _epoch in range(2):
        for _ in trace.load(4):
            if place == "first":
                trace.zero_grad()
            trace.forward_backward(trace.zero_grad if place == "before backward" else lambda: None)
            trace.tick(2)
            trace.ops(1)  # clipping
            trace.optimizer_step()
            trace.end_step()
            if place == "last":
                trace.zero_grad()
    steps = check_truth(trace)
    assert len(steps) == 8
    assert steps.optimizer == 0
    assert steps.track == 0
    assert_assigns_truth(trace, steps)


def test_loop_without_loader_leaves_the_making_of_the_parameters_out() -> None:
    trace = Trace()
    trace.ops(20)
    trace.tick(1_000)
    trace.begin_step()
    for _ in range(5):
        trace.zero_grad()
        trace.tick(3)
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
    check_truth(trace)


def test_only_step_without_loader_begins_at_the_first_span() -> None:
    trace = Trace()
    with trace.step():
        trace.forward_backward()
        trace.optimizer_step()
    assert len(check_truth(trace)) == 1


def gan(first: int, second: int) -> Trace:
    trace = Trace()
    for _ in trace.load(4):
        trace.forward_backward()
        trace.optimizer_step(first, "Adam")
        trace.end_step()
        trace.tick(2)
        trace.forward_backward()
        trace.optimizer_step(second, "Adam")
    return trace


def test_gan_with_two_optimizers_of_the_same_name() -> None:
    assert check_truth(gan(3, 1)).optimizer == 3
    assert len(find_steps(gan(-1, -1).columns())) == 8  # who cannot tell the two apart counts both


def test_call_without_an_instance_beside_known_ones_does_not_count() -> None:
    trace = gan(2, 5)
    trace.optimizer_step(-1, "Adam")  # killed in its middle: the instance is only known at the end
    assert check_truth(trace).optimizer == 2


def test_first_call_without_an_instance_does_not_count_either() -> None:
    trace = Trace()
    trace.forward_backward()
    trace.optimizer_step(-1, "Adam")
    for _ in trace.load(3):
        trace.forward_backward()
        trace.optimizer_step(4, "Adam")
        trace.end_step()
    assert check_truth(trace).optimizer == 4


def test_gradient_accumulation_is_one_step() -> None:
    trace = Trace()
    for batch in trace.load(8):
        trace.forward_backward()
        if batch % 4 == 3:
            trace.optimizer_step()
            trace.end_step()
            trace.zero_grad()
    assert len(check_truth(trace)) == 2


def test_step_that_mixed_precision_skips_is_part_of_the_next() -> None:
    trace = Trace()
    for batch in trace.load(4):
        trace.forward_backward()
        if batch != 1:
            trace.optimizer_step()
            trace.end_step()
    assert len(check_truth(trace)) == 3


def test_two_loaders_in_a_step() -> None:
    trace = Trace()
    for _ in zip(trace.load(4), trace.load(4), strict=False):
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
    # Making the iterator of the second loader cuts the first loader's wait off from step 0.
    assert len(check_truth(trace)) == 4


@pytest.mark.parametrize("network", ["", "Net"])
def test_evaluation_beside_several_loaders_in_a_step(network: str) -> None:
    trace = Trace(network=network)
    for _epoch in range(2):
        for _ in trace.load(4):
            with trace.phase("forward"), trace.recorded(network):
                trace.ops(3)
            trace.wait(("aten::stack",), "AnotherIter")
            trace.forward_backward()
            trace.optimizer_step()
            trace.end_step()
        for _ in trace.load(2):
            with trace.recorded(network):
                trace.ops(3)
    check_truth(trace)


def test_evaluation_in_the_middle_of_an_epoch_of_a_loop_that_loads_ahead() -> None:
    trace = Trace(network="Net")
    for number in range(6):
        if number in (2, 4):
            for content in (("aten::stack",), ("aten::stack",), ()):
                trace.wait(content)
                trace.op("aten::copy_")
                trace.call("Net")
        trace.begin_step()
        trace.wait(("aten::stack",))
        trace.op("aten::copy_")  # to the device, before the next batch is loaded
        trace.wait(("aten::stack",))
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
    steps = find_steps(trace.columns())
    assert list(zip(steps.start_ns, steps.start_ns + steps.dur_ns, strict=True)) == trace.steps


def test_modules_that_prepare_the_batches_do_not_tell_what_evaluation_is() -> None:
    trace = Trace()
    for number in range(6):
        if number == 3:
            for _ in range(2):
                trace.wait(("aten::stack",))
                trace.ops(3)
        trace.begin_step()
        with trace.span("loader", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            trace.call("Crop")
        trace.forward_backward()
        trace.optimizer_step()
        trace.end_step()
    steps = find_steps(trace.columns())
    assert list(zip(steps.start_ns, steps.start_ns + steps.dur_ns, strict=True)) == trace.steps


def test_closure_that_loads_its_batches() -> None:
    trace = Trace()

    def closure() -> None:
        trace.wait(("aten::stack",))
        trace.ops(2)
        trace.wait(("aten::stack",))
        trace.zero_grad()
        trace.forward_backward()

    for _ in range(3):
        trace.optimizer_step(closure=closure)
        trace.end_step()
    steps = find_steps(trace.columns())
    assert steps.start_ns.tolist() == [begin for begin, _ in trace.steps]
    check_laws(steps)


def test_optimizer_in_the_backward_pass() -> None:
    trace = Trace()

    def update() -> None:
        for parameter in (0, 1):
            trace.optimizer_step(parameter)
            trace.zero_grad()

    for _ in trace.load(4):
        with trace.phase("forward"):
            trace.ops()
            trace.op("aten::ones_like")
        trace.backward(in_last=update)
        trace.end_step()  # the backward pass is not cut at the first optimizer's call
    check_truth(trace)


def test_optimizer_whose_call_calls_the_one_it_derives_from() -> None:
    trace = Trace()
    for _ in trace.load(4):
        trace.forward_backward()
        trace.optimizer_step(0, closure=lambda: trace.optimizer_step(0))
        trace.end_step()
    check_truth(trace)


@pytest.mark.parametrize("iterator", [SINGLE, WORKERS])
@pytest.mark.parametrize("batches", [1, 4])
def test_evaluation_between_epochs_is_in_no_step(iterator: str, batches: int) -> None:
    trace = Trace()
    for _ in trace.load(2, iterator):  # a check before the training
        trace.ops()
    for _epoch in range(3):
        for _ in trace.load(batches, iterator):
            trace.forward_backward()
            trace.optimizer_step()
            trace.end_step()
        trace.ops(1)
        for _ in trace.load(2, iterator):
            trace.ops(4)
    assert len(check_truth(trace)) == 3 * batches


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("iterator", [SINGLE, WORKERS])
@pytest.mark.parametrize("tensors", [True, False])
@pytest.mark.parametrize("metrics", [0, 1])
def test_inference_counts_batches_and_not_waits(
    shuffle: bool, iterator: str, tensors: bool, metrics: int
) -> None:
    trace = Trace()
    for _epoch in range(2):
        for _ in trace.load(4, iterator, shuffle, tensors):
            with trace.phase("forward"):
                trace.ops(4)
            trace.steps.append(
                (trace.began_wait, trace.now + 1)
            )  # a nanosecond later the next wait begins
        trace.ops(metrics)
    assert len(check_truth(trace, "loader")) == 8


@pytest.mark.parametrize("iterator", [SINGLE, WORKERS])
def test_long_computations_after_an_epoch_are_no_step(iterator: str) -> None:
    trace = Trace()
    for _epoch in range(2):
        for _ in trace.load(4, iterator):
            trace.ops(2)
        trace.ops(20)
    assert len(find_steps(trace.columns())) == 8


def test_batches_of_workers_out_of_order_are_steps() -> None:
    trace = Trace()
    for content in (
        ("aten::set_",),
        ("aten::set_", "aten::set_"),
        (),
        ("aten::set_",),
        ("aten::set_",),
    ):
        with trace.step():
            trace.wait(content, WORKERS)
            with trace.phase("forward"):
                trace.ops(3)
    trace.wait((), WORKERS)
    assert len(check_truth(trace, "loader")) == 5


@pytest.mark.parametrize("tensors", [True, False])
def test_loader_alone(tensors: bool) -> None:
    trace = Trace()
    for _epoch in range(2):
        for _ in trace.load(4, shuffle=False, tensors=tensors):
            pass
    assert len(find_steps(trace.columns())) == 8


def test_loop_that_was_cut_ends_with_its_last_span() -> None:
    trace = Trace()
    with trace.span("range", "main"):
        trace.tick(5)
        for _ in range(3):
            with trace.step():
                trace.wait(("aten::stack",))
                with trace.phase("forward"):
                    trace.ops()
        trace.tick(50)
    check_truth(trace, "loader")


def test_training_by_hand_without_an_optimizer() -> None:
    trace = Trace()
    for _ in range(3):
        with trace.step():
            trace.wait(("aten::stack",))
            trace.forward_backward()
            trace.op("aten::sub_")
    check_truth(trace, "loader")


def test_one_wait_is_one_step() -> None:
    trace = Trace()
    with trace.step():
        trace.wait(())
    check_truth(trace, "loader")


def test_steps_on_a_second_thread() -> None:
    trace = Trace()
    trace.ops(3)
    with trace.span("range", "waits for the trainer"), trace.on(7):
        for _ in trace.load(3):
            trace.forward_backward()
            with trace.on(2):
                trace.tick()
                trace.wait(
                    ("aten::stack",)
                )  # another thread prefetches, which is no phase of this one
                del trace.truth[-4:]
                trace.truth += ["other"] * 4
            trace.optimizer_step()
            trace.end_step()
    assert check_truth(trace).track == 7


def test_run_of_weeks_with_spans_of_hours() -> None:
    columns = gan(3, 1).columns()
    expected = find_steps(columns)
    scale = 3_600_000_000_000
    columns.start_ns *= scale
    columns.dur_ns *= scale
    steps = find_steps(columns)
    assert np.array_equal(steps.start_ns, expected.start_ns * scale)
    assert np.array_equal(phase_columns(steps), phase_columns(expected) * scale)


def test_nothing_and_nothing_to_find() -> None:
    trace = Trace()
    for _ in range(2):
        steps = check_truth(trace, "none")
        assert len(steps) == 0
        assert steps.optimizer is None
        assert steps.track == -1
        step, phase = steps.assign(np.array([-5, 0, 2**62]))
        assert step.tolist() == phase.tolist() == [-1, -1, -1]
        trace.forward_backward()
        trace.zero_grad()


def durations(dur_ns: list[int]) -> ProcessSteps:
    spans, now = [], 0
    for dur in dur_ns:
        spans.append((0, 0, now, 1, "loader", "x.__next__", -1))
        spans.append((0, 0, now + 1, dur - 1, "function", "aten::mm", -1))
        now += dur
    return find_steps(make_columns(spans))


@pytest.mark.parametrize(
    ("dur_ns", "warmup"),
    [
        ([90, 90], 0),
        ([90] * 3, 1),
        ([900] * 3 + [100] * 16, 1),
        ([100] * 50, 1),
        (
            [900] * 4 + [100] * 46,
            2,
        ),  # the median of five steps is settled when two of them are slow
        ([900] * 20 + [100] * 80, 10),
        ([900] * 7 + [100] * 93, 5),
        ([900] + [115] * 10 + [100] * 89, 1),
    ],
)
def test_warmup(dur_ns: list[int], warmup: int) -> None:
    steps = durations(dur_ns)
    assert steps.dur_ns.tolist() == dur_ns
    assert steps.warmup.tolist() == [True] * warmup + [False] * (len(dur_ns) - warmup)


@given(programs())
def test_law_training_programs(trace: Trace) -> None:
    assert_assigns_truth(trace, check_truth(trace))


SPAN = st.tuples(
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(0, 60),
    st.integers(0, 25),
    st.sampled_from(KINDS),
    st.sampled_from(
        [
            "aten::mm",
            "aten::ones_like",
            "aten::empty",
            "Optimizer.step#A.step",
            "Optimizer.zero_grad#A",
        ]
    ),
    st.integers(-1, 1),
)


@given(st.lists(SPAN, max_size=40))
def test_law_any_spans_however_senseless(
    spans: list[tuple[int, int, int, int, str, str, int]],
) -> None:
    steps = find_steps(make_columns(spans))
    check_laws(steps)
    assert steps.rule in ("optimizer", "loader", "request", "none")
    assert (len(steps) == 0) == (steps.rule == "none")

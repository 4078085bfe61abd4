"""Requests of synthetic programs that call modules, without an optimizer and without a loader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from msgspec.structs import replace

from layerscope.ingest.lines import RecordedWindow
from layerscope.ingest.phases import EARLIEST
from layerscope.ingest.steps import find_steps
from layerscope.model.layers import PHASES
from tests.analyse.traces import Trace, check_laws, check_truth


def rounds(trace: Trace, count: int = 5) -> Iterator[int]:
    """A loop with Python before and operators after what it yields to."""
    for number in range(count):
        trace.tick(3)
        yield number
        trace.tick(2)
        trace.op("aten::argmax")


def test_each_call_of_the_network_is_a_request_and_all_of_it_forward() -> None:
    trace = Trace()
    trace.ops(5)
    for _ in rounds(trace, 12):
        with trace.step():
            trace.call("Net")
    steps = check_truth(trace, "request")
    assert len(steps) == 12
    assert (steps.forward_ns == steps.dur_ns).all()


def test_one_call_is_one_request() -> None:
    trace = Trace()
    with trace.step():
        trace.call("Net")
    check_truth(trace, "request")


def test_a_loss_after_each_call_is_part_of_the_request() -> None:
    trace = Trace()
    for _ in rounds(trace):
        with trace.step():
            trace.call("Net", 4)
            trace.tick(7)  # neither in the one nor in the other: other
            trace.call("CrossEntropyLoss", 1)
    steps = check_truth(trace, "request")
    assert steps.other_ns.tolist() == [7] * 5


@pytest.mark.parametrize("every", [2, 5, 10])
def test_a_metric_now_and_then_is_part_of_no_request(every: int) -> None:
    trace = Trace()
    for number in rounds(trace, 30):
        with trace.step():
            trace.call("Net", 20)
        if number % every == 0:
            trace.call("Accuracy", 1)
    check_truth(trace, "request")


def test_a_pipeline_is_one_request() -> None:
    trace = Trace()
    for _ in rounds(trace):
        with trace.step():
            trace.call("Encoder")
            trace.tick(4)
            trace.call("Decoder", 3)
            trace.op("aten::cat")  # in no call
            trace.call("Head", 1)
    check_truth(trace, "request")


def test_an_encoder_with_many_calls_of_the_decoder_is_one_request() -> None:
    trace = Trace()
    for number in rounds(trace):
        with trace.step():
            trace.call("Encoder", 1)
            for _ in range(3 + 7 * number):
                trace.tick(2)
                trace.call("Decoder", 4)
    check_truth(trace, "request")


def test_a_loop_that_generates_tokens_has_a_request_for_each() -> None:
    trace = Trace()
    for _prompt in rounds(trace, 3):
        for _token in range(20):
            with trace.step():
                trace.call("GPT")
            trace.op("aten::argmax")
    assert len(check_truth(trace, "request")) == 60


def test_a_module_that_was_called_once_before_leads_no_request() -> None:
    trace = Trace()
    trace.call("Normalizer", 1)
    for _ in rounds(trace, 8):
        with trace.step():
            trace.call("Net", 4)
    check_truth(trace, "request")


def test_two_models_one_after_the_other_have_requests_of_their_own() -> None:
    trace = Trace()
    for name in ("Small", "Large"):
        for _ in rounds(trace, 20):
            with trace.step():
                trace.call(name)
    check_truth(trace, "request")


def test_two_models_that_are_served_in_any_order_have_requests_of_their_own() -> None:
    trace = Trace()
    for name in "ABBAABABBBAABABAABBA":
        trace.tick(5)
        with trace.step():
            trace.call(name)
    assert len(check_truth(trace, "request")) == 20


def test_a_second_model_between_the_calls_of_a_pipeline_does_not_tear_it() -> None:
    trace = Trace()
    for number in rounds(trace, 30):
        with trace.step():
            trace.call("Encoder")
            if number % 3 == 0:
                trace.call("Reranker", 6)
            trace.call("Decoder")
    check_truth(trace, "request")


def serve(*, requests: int, threads: int) -> Trace:
    """Threads that serve at the same time: each request takes 10 ns and begins 3 ns after one of
    another thread.
    """
    trace = Trace()
    for number in range(requests):
        track = 1 + number % threads
        start = 1_000 + 3 * number + 100 * (number // threads)
        trace.spans += [
            (track, 1, start + 1, 4, "function", "aten::mm", -1),
            (track, 0, start, 8, "module", "Net", -1),
            (track, 0, start + 9, 1, "module", "Head", -1),
        ]
    return trace


def test_requests_of_several_threads_overlap() -> None:
    columns = serve(requests=12, threads=4).columns()

    steps = find_steps(columns)

    check_laws(steps)
    assert (steps.rule, len(steps), sorted(steps.lanes)) == ("request", 12, [1, 2, 3, 4])
    assert set(steps.dur_ns.tolist()) == {10}
    assert set(zip(steps.forward_ns.tolist(), steps.other_ns.tolist(), strict=True)) == {(9, 1)}
    mm = np.flatnonzero(columns.kind == 0)
    step, phase = steps.assign(columns.start_ns[mm], columns.track[mm])
    assert step.tolist() == list(range(12))
    assert {PHASES[code] for code in phase.tolist()} == {"forward"}


def with_heads(requests: int, threads: int = 2) -> Trace:
    """Threads that serve by turns, each with a head of its own."""
    trace = Trace()
    for number in range(requests):
        track = 1 + number % threads
        start = 1_000 + 100 * number
        trace.spans += [
            (track, 0, start, 8, "module", "Net", -1),
            (track, 0, start + 9, 1, "module", f"Head{track}", -1),
        ]
    return trace


@pytest.mark.parametrize(("requests", "threads"), [(40, 2), (4, 2), (5, 2), (9, 3)])
def test_a_module_of_one_thread_is_part_of_its_requests(requests: int, threads: int) -> None:
    steps = find_steps(with_heads(requests, threads).columns())

    check_laws(steps)
    assert (len(steps), set(steps.dur_ns.tolist())) == (requests, {10})


def test_a_single_request_does_not_tell_what_belongs_to_a_thread() -> None:
    assert int(find_steps(with_heads(2).columns()).dur_ns.max()) < 10


@pytest.mark.parametrize("calls", ["AB BA", "AB BA AA BB", "AAB ABA BBA BAB"])
def test_a_model_that_follows_another_one_by_chance_is_no_part_of_its_requests(calls: str) -> None:
    trace = Trace()
    for track, names in enumerate(calls.split()):
        with trace.on(1 + track):
            for name in names:
                trace.tick(5)
                with trace.step():
                    trace.call(name)

    steps = find_steps(trace.columns())

    check_laws(steps)
    assert (
        list(zip(steps.start_ns.tolist(), (steps.start_ns + steps.dur_ns).tolist(), strict=True))
        == trace.steps
    )


def test_a_module_now_and_then_on_one_thread_belongs_to_the_requests_of_another_one() -> None:
    trace = Trace()
    for number in range(40):
        for track in (1, 2):
            with trace.on(track):
                trace.tick(5)
                is_part = track == 1
                with trace.step() if is_part else nullcontext():
                    with nullcontext() if is_part else trace.step():
                        trace.call("Net", 20)
                    if is_part or number % 4 == 0:
                        trace.call("Head", 1)

    steps = find_steps(trace.columns())

    check_laws(steps)
    assert (
        list(zip(steps.start_ns.tolist(), (steps.start_ns + steps.dur_ns).tolist(), strict=True))
        == trace.steps
    )


def check_window(trace: Trace, first: int, last: int) -> None:
    """A window of these steps holds what they truly were; what was under way when it opened is not
    recorded.
    """
    open_ns, close_ns = trace.steps[first][0], trace.steps[last][0] - 1
    trace.spans = [span for span in trace.spans if open_ns <= span[2] <= close_ns]
    window = RecordedWindow(
        open_ns if first else EARLIEST, close_ns, first=first, rule="request", steps=last - first
    )
    steps = find_steps(replace(trace.columns(), windows=(window,)))
    check_laws(steps)
    ends = (steps.start_ns + steps.dur_ns).tolist()
    assert list(zip(steps.start_ns.tolist(), ends, strict=True)) == trace.steps[first:last]


@pytest.mark.parametrize("last", [21, 22, 25, 39])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_window_holds_its_requests_however_few_they_are(last: int, threads: int) -> None:
    trace = with_heads(40, threads)
    trace.steps = [(1_000 + 100 * number, 1_010 + 100 * number) for number in range(40)]

    check_window(trace, 20, last)


@pytest.mark.parametrize("first", [0, 2])
def test_a_window_of_one_request_with_many_calls_of_a_decoder(first: int) -> None:
    trace = Trace()
    for _ in rounds(trace):
        with trace.step():
            trace.call("Encoder", 1)
            for _ in range(20):
                trace.call("Decoder", 4)

    check_window(trace, first, first + 1)


@pytest.mark.parametrize("last", [6, 8, 12])
def test_the_rest_of_a_request_of_another_thread_is_none_of_the_window(last: int) -> None:
    trace = Trace()
    for number in range(last):
        track, start = 1 + number % 2, 1_000 + 20 * number
        trace.steps.append((start, start + 38))
        trace.spans += [
            (track, 0, start, 8, "module", "Net", -1),
            # The next one has begun on the other thread by now.
            (track, 0, start + 21, 5, "module", "Middle", -1),
            (track, 0, start + 28, 10, "module", f"Head{track}", -1),
        ]
    open_ns = trace.steps[5][0]
    trace.spans = [span for span in trace.spans if span[2] >= open_ns]
    assert len(trace.spans) == 3 * (last - 5) + 2

    window = RecordedWindow(open_ns, trace.steps[-1][1], first=5, rule="request", steps=last - 5)
    steps = find_steps(replace(trace.columns(), windows=(window,)))

    check_laws(steps)
    ends = (steps.start_ns + steps.dur_ns).tolist()
    assert list(zip(steps.start_ns.tolist(), ends, strict=True)) == trace.steps[5:]


def test_a_thread_for_each_request() -> None:
    steps = find_steps(serve(requests=40, threads=40).columns())
    check_laws(steps)
    assert (len(steps), len(steps.lanes)) == (40, 40)


def test_what_is_left_over_on_both_sides_of_a_request_is_not_one_request() -> None:
    trace = Trace()
    for name in "NANBNANBNANB":
        trace.tick(2)
        with trace.step():
            trace.call(name)
    assert len(check_truth(trace, "request")) == 12


def test_stages_on_threads_of_their_own_are_requests_of_their_own() -> None:
    trace = Trace()
    for number in range(8):
        trace.track = number
        trace.tick(2)
        with trace.step():
            trace.call("Decoder" if number % 2 else "Encoder")
    assert len(check_truth(trace, "request")) == 8


def test_operators_of_other_threads_belong_to_the_request_of_their_moment_when_one_thread_serves() -> (
    None
):
    trace = Trace()
    for _ in rounds(trace):
        with trace.step(), trace.phase("forward"), trace.module("Net"):
            trace.op()
            with trace.on(3):
                trace.op("aten::mkldnn_linear")
    steps = check_truth(trace, "request")
    begin = np.array([begin for begin, _ in trace.steps])
    assert steps.assign(begin, np.full(5, 3, np.int32))[0].tolist() == [0, 1, 2, 3, 4]


def test_training_by_hand_is_measured_from_call_to_call() -> None:
    trace = Trace(network="Net")
    for _ in range(4):
        with trace.step():
            trace.forward_backward()
            trace.tick(2)
            trace.op("aten::sub_")
    check_truth(trace, "request")


def test_training_by_hand_with_backward_on_threads_of_the_engine() -> None:
    trace = Trace(engine_kind="backward")
    for _ in range(4):
        with trace.step():
            with trace.phase("forward"), trace.module("Net"):
                trace.ops()
            with trace.on(9):
                trace.backward()
            trace.op("aten::sub_")
    check_truth(trace, "request")


def test_a_backward_pass_now_and_then_changes_nothing() -> None:
    trace = Trace()
    for number in rounds(trace, 10):
        with trace.step():
            trace.call("Net")
        if number % 5 == 4:
            trace.backward()
    check_truth(trace, "request")


def test_recomputation_in_a_thread_of_the_engine_is_no_request() -> None:
    trace = Trace(engine_kind="backward")
    for _ in range(3):
        with trace.step():
            with trace.phase("forward"), trace.module("Net"):
                trace.ops()
            with trace.on(9):
                trace.backward(in_last=lambda: trace.call("Block"))
            del trace.truth[-9:]
            trace.truth += ["backward"] * 9
    steps = find_steps(trace.columns())
    assert (steps.rule, steps.lanes) == ("request", {})
    assert steps.start_ns.tolist() == [begin for begin, _ in trace.steps]


@pytest.mark.parametrize("rule", ["loader", "optimizer"])
def test_a_loader_and_an_optimizer_come_before_requests(rule: str) -> None:
    trace = Trace(network="Net")
    for _ in trace.load(4):
        trace.forward_backward()
        if rule == "optimizer":
            trace.optimizer_step()
    assert (find_steps(trace.columns()).rule, len(find_steps(trace.columns()))) == (rule, 4)

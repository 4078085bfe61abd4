"""The summary of programs that serve requests."""

from __future__ import annotations

from typing import Any

import pytest

from layerscope.analyse.step_times import StepTimes
from layerscope.show.summary_steps import step_line, what_a_step_is
from tests.recordings import MS, Recording, S
from tests.show.test_summary import text_of


def served(rule: str = "request", backward_ns: int = 0) -> Recording:
    """Twelve requests of two threads, in a network with a loss beside it."""
    recording = Recording()
    worker = recording.add_thread(0, 101, "worker")
    recording.rows["modules"] = [
        {"module": 0, "parent": None, "path": "Net", "class": "Net"},
        {"module": 1, "parent": 0, "path": "Net.0", "class": "Linear"},
        {"module": 2, "parent": None, "path": "MSELoss", "class": "MSELoss"},
    ]
    for number in range(12):
        start_ns = S + number * 10 * MS
        phases = (0, 11 * MS - backward_ns, backward_ns, 0, MS)
        recording.add_step(number, start_ns, phases, rule=rule, warmup=number == 0)
        about = {"step": number, "track": worker if number % 2 else recording.thread}
        recording.add_span("Net", start_ns, 8 * MS, layer="modules", kind="module", **about)
        for module, dur_ns in enumerate((2 * MS, 3 * MS, 20_000)):
            recording.add_span("aten::addmm", start_ns, dur_ns, module=module, **about)
        recording.add_span("aten::topk", start_ns + 9 * MS, 2000, **about)
    recording.add_counter(0, "cpu_ns", [(0, 0), (2 * S, 4 * S)], "ns")
    return recording


def test_requests_that_an_exception_ended_are_not_measured_and_say_what_failed() -> None:
    recording = served()
    recording.rows["args"] = [{"args": 0, "json": '{"operator": "aten::addmm"}'}]
    said = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    for number in (3, 4, 8):
        step = recording.rows["steps"][number]
        step["dur_ns"] += 500 * MS
        step["other_ns"] += 500 * MS
        mark = {
            "kind": "raised",
            "name": said if number < 5 else "ValueError",
            "args": 0 if number < 5 else None,
        }
        at_ns = step["start_ns"] + step["dur_ns"]
        recording.rows.setdefault("marks", []).append(
            {"track": recording.thread, "at_ns": at_ns, **mark}
        )
    caught = {
        "track": recording.thread,
        "at_ns": S + MS,
        "kind": "raised",
        "name": "KeyError",
        "args": None,
    }
    recording.rows["marks"].append(caught)

    text = text_of(recording)

    assert "12 calls, the first excluded (warm-up); 3 failed and excluded." in text
    assert "A call takes 12.0 ms (p95 12.0, p99 12.0)" in text
    assert f"Failed: 2 calls in aten::addmm: {said}\n" in text
    assert "Failed: 1 call, in no operator: ValueError\n" in text
    assert "Failed: 1 forward pass, in no operator: KeyError\n" in text


def test_if_every_request_fails_they_are_measured() -> None:
    recording = served()
    recording.rows["marks"] = [
        {
            "track": 0,
            "at_ns": step["start_ns"] + step["dur_ns"],
            "kind": "raised",
            "name": "ValueError",
            "args": None,
        }
        for step in recording.rows["steps"]
    ]

    assert "12 calls, the first excluded (warm-up); 11 failed." in text_of(recording)


def test_a_request_that_generates_says_how_fast_its_tokens_come() -> None:
    recording = Recording()
    recording.rows["modules"] = [
        {"module": 0, "parent": None, "path": "GPT", "class": "GPT"},
        {"module": 1, "parent": 0, "path": "GPT.generate", "class": "GPT"},
    ]
    for number in range(4):
        start_ns = S + number * 100 * MS
        recording.add_step(
            number, start_ns, (0, 50 * MS, 0, 0, 0), rule="request", warmup=number == 0
        )
        of_modules: dict[str, Any] = {"layer": "modules", "kind": "module", "step": number}
        whole = recording.add_span("GPT.generate", start_ns, 50 * MS, module=1, **of_modules)
        for token in range(9):  # 8 ms to the end of the first one, then one every 5 ms
            at_ns = start_ns + (MS if token == 0 else 4 * MS + 5 * token * MS)
            recording.add_span(
                "GPT", at_ns, 7 * MS if token == 0 else 4 * MS, parent=whole, module=0, **of_modules
            )
    lines = text_of(recording).splitlines()

    told = [line for line in lines if "GPT.generate" in line or "token" in line]
    assert told[0].endswith("a call is one of GPT.generate")
    assert told[1].endswith("9 tokens a call, 180 a second")
    assert told[2].endswith("the first token takes 8.00 ms, each further one 5.00 ms")


def test_calls_of_a_network_are_called_calls() -> None:
    lines = text_of(served()).splitlines()

    assert lines[0].endswith("12 calls, the first excluded (warm-up).")
    assert lines[3:10] == [
        "A call takes 12.0 ms (p95 12.0, p99 12.0)    a call is one pass through the modules",
        "  forward     11.0 ms   92 %  ###########    98.2 calls a second, up to 2 at a time",
        "  other       1.00 ms    8 %  #              calls are steady: no drift, no outliers",
        "                                             CPU 20.4 ms a call: 2.0 of 4 CPUs busy",
        "                                             memory at most 300 MB",
        "By module: 0 (Linear) 3.00 ms, functional ops in Net.forward 2.00, MSELoss 0.02",
        "",
    ]
    assert lines[10].split() == ["Operator", "(self", "time)", "ms/call", "share", "calls"]
    assert lines[-1] == "Next: layerscope report"


def test_a_request_of_one_network_names_it() -> None:
    recording = served()
    recording.rows["spans"] = [span for span in recording.rows["spans"] if span.get("module") != 2]

    assert "a call is one pass through Net\n" in text_of(recording)


def test_who_trains_by_hand_makes_steps() -> None:
    printed = text_of(served(backward_ns=2 * MS))

    assert "12 steps, the first excluded (warm-up)." in printed
    assert "A step takes 12.0 ms (p95 12.0)" in printed
    assert "a step is one pass through the modules" in printed
    assert "calls are" not in printed


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("mark", "a step is what was marked as one"),
        ("loader", "a step is one batch of the data loader"),
    ],
)
def test_the_rule_is_said(rule: str, expected: str) -> None:
    assert expected in text_of(served(rule=rule))


@pytest.mark.parametrize("steps", [30, 130])
def test_of_calls_that_are_executed_later_the_first_ones_say_nothing(steps: int) -> None:
    recording = Recording()
    scopes = [(0, None, "update", "jit"), (1, 0, "update.layer", "named_scope")]
    columns = ("module", "parent", "path", "class")
    recording.rows["modules"] = [dict(zip(columns, one, strict=True)) for one in scopes]
    start_ns = S
    for number in range(steps):
        dur_ns = 20_000 if number < 15 else MS  # there is room for so many
        recording.add_step(number, start_ns, (0, 0, 0, 0, dur_ns), rule="mark")
        recording.add_span("PjitFunction(update)", start_ns, dur_ns - 1_000, step=number)
        for module in (0, 1):
            recording.add_span("dot", start_ns + 500, 9_000, step=number, module=module)
        start_ns += dur_ns
    printed = text_of(recording)

    assert "a step is one call of PjitFunction(update)" in printed
    assert "calls return before they are executed: layerscope table dispatch" in printed
    assert "no operator running: Python or a wait" in printed
    assert ("too few steps to say" in printed) == (steps == 30)
    assert "By module: layer 9.00 µs, rest of update 9.00" in printed or steps == 130


@pytest.mark.parametrize(
    ("numbers", "reason", "said"),
    [
        ((0, 10, 20, 40, 50), "no_segment", "1 more was under way while nothing was recorded"),
        ((3, 4, 5, 6, 9), "no_segment", "2 more were under way while nothing was recorded"),
        ((3, 4, 5, 6, 9), "ring_full", ""),
        ((0, 1, 2, 3, 0), "no_segment", ""),
    ],
)
def test_numbered_steps_that_are_missing_are_counted(
    numbers: tuple[int, ...], reason: str, said: str
) -> None:
    recording = Recording()
    for place, number in enumerate(numbers):
        recording.rows.setdefault("args", []).append(
            {"args": place, "json": f'{{"step_num": {number}}}'}
        )
        start_ns = S + place * 10 * MS
        recording.add_step(place, start_ns, (0, 0, 0, 0, 9 * MS), rule="mark")
        task = {"layer": "ranges", "kind": "task", "step": place, "args": place}
        recording.add_span("train", start_ns, 9 * MS, **task)
    recording.add_gap(reason, None)

    printed = text_of(recording)

    assert said in printed
    assert ("under way" in printed) == bool(said)


def test_calls_of_each_shape_have_percentiles_of_their_own() -> None:
    recording = Recording()
    recording.rows["args"] = [
        {"args": 0, "json": '{"shapes": [[1, 12]], "dtypes": ["int64"]}'},
        {"args": 1, "json": '{"shapes": [[1, 1]], "dtypes": ["int64"]}'},
        {"args": 2, "json": '{"shapes": [[8, 8]], "dtypes": ["float32"]}'},
    ]
    for number in range(40):  # a prompt of 12 tokens, then 9 tokens, four times
        is_prompt = number % 10 == 0
        start_ns, dur_ns = S + number * 100 * MS, 30 * MS if is_prompt else 5 * MS
        recording.add_step(number, start_ns, (0, dur_ns, 0, 0, 0), rule="request")
        of_first = {"step": number, "args": 0 if is_prompt else 1}
        recording.add_span("aten::embedding", start_ns, MS, **of_first)
        recording.add_span("aten::addmm", start_ns + MS, MS, step=number, args=2)
    lines = text_of(recording).splitlines()

    told = [line for line in lines if line.startswith("  of int64")]
    assert told == [
        "  of int64[1, 1]: 36 calls, 60 % of the time, p50 5.00 ms, p95 5.00 ms",
        "  of int64[1, 12]: 4 calls, 40 % of the time, p50 30.0 ms, p95 30.0 ms",
    ]


def test_calls_that_all_have_another_shape_are_not_told_apart() -> None:
    recording = Recording()
    for number in range(40):
        shape = f'{{"shapes": [[1, {number}]], "dtypes": ["int64"]}}'
        recording.rows.setdefault("args", []).append({"args": number, "json": shape})
        start_ns = S + number * 100 * MS
        recording.add_step(number, start_ns, (0, 5 * MS, 0, 0, 0), rule="request")
        recording.add_span("aten::embedding", start_ns, MS, step=number, args=number)

    assert "of int64" not in text_of(recording)


def test_what_is_marked_as_a_request_is_called_one() -> None:
    printed = text_of(served(rule="mark"), step_mark="serve request")

    assert "A request takes 12.0 ms (p50 12.0, p90 12.0, p99 12.0)" in printed
    assert "a request is what was marked as one" in printed


def test_a_request_that_a_server_hands_over_says_what_it_waits_for() -> None:
    times = StepTimes(
        rule="served",
        count=40,
        warmup=0,
        processes=1,
        mean_ns=10.0 * MS,
        p50_ns=10.0 * MS,
        p90_ns=12.0 * MS,
        p95_ns=13.0 * MS,
        p99_ns=14.0 * MS,
        phases_ns={"forward": 2.0 * MS, "other": 8.0 * MS},
        outliers=0,
        slowest_ns=14 * MS,
        drift=None,
        per_second=100.0,
        at_once=3,
        noun="request",
        others_ns=5.0 * MS,
    )
    assert step_line(times) == "A request takes 10.0 ms (p50 10.0, p90 12.0, p99 14.0)"
    said = list(what_a_step_is(times, None))
    assert said[0] == "a request is what the server or the program marks"
    assert said[-1] == "of it 20 % in its calls, 50 % while only others' ran"

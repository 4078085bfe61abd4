"""The summary as text: everything a run is told by, in words that stand on their own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse.summary import summarise
from layerscope.analyse.thinned import Thinned
from layerscope.recording.reader import Reader
from layerscope.recording.run import ExitState, LayerState, ProgramState, RecordingCost
from layerscope.show import summary as show
from tests.recordings import MS, Recording, S


def text_of(recording: Recording, **info: Any) -> str:
    with (
        tempfile.TemporaryDirectory() as folder,
        Reader(recording.write(Path(folder) / "x.layerscope", **info)) as reader,
    ):
        return show.text(summarise(reader))


def training() -> Recording:
    recording = Recording()
    for number in range(12):
        start_ns = S + number * 10 * MS
        forward = 24 * MS if number == 7 else 4 * MS
        phases = (MS, forward, 3 * MS, MS, MS // 10)
        recording.add_step(number, start_ns, phases, warmup=number < 2)
        recording.add_span("aten::conv2d", start_ns + MS, 3 * MS, step=number)
        for _ in range(4):
            recording.add_span("aten::relu", start_ns + 5 * MS, 100_000, step=number)
        recording.add_span(
            "Optimizer.step#SGD.step", start_ns + 8 * MS, MS, step=number, kind="optimizer"
        )
    recording.add_counter(0, "cpu_ns", [(0, 0), (2 * S, 4 * S)], "ns")
    recording.add_counter(0, "system_ns", [(0, 0), (2 * S, S)], "ns")
    recording.add_counter(0, "faults_minor", [(0, 0), (2 * S, 60_000)])
    recording.add_counter(0, "faults_major", [(0, 0), (2 * S, 0)])
    recording.add_counter(
        0, "rss_bytes", [(S + number * 10 * MS, 351_000_000) for number in range(12)], "bytes"
    )
    return recording


def test_a_training_run_from_the_header_to_the_next_command() -> None:
    assert text_of(training()) == (
        "layerscope: examples/train.py, exit 0, 2.00 s. 12 steps, the first 2 excluded (warm-up).\n"
        "Python 3.11.7, torch 2.13.0+cpu\n"
        "\n"
        "A step takes 11.1 ms (p50 9.10, p95 29.1)    a step is one call of the optimizer\n"
        "  loading     1.00 ms    9 %  #              no drift; 1 of 10 steps above 2x the median, up to 29.1 ms\n"
        "  forward     6.00 ms   54 %  ######         CPU 22.2 ms a step: 2.0 of 4 CPUs busy, 5.55 ms in the kernel\n"
        "  backward    3.00 ms   27 %  ###            page faults 333 a step, none from disk\n"
        "  optimizer   1.00 ms    9 %  #              memory 351 MB at the end, not growing\n"
        "  other       0.10 ms    1 %\n"
        "\n"
        "Operator (self time)          ms/step  share    calls\n"
        "aten::conv2d                     3.00   27 %        1\n"
        "Optimizer.step#SGD.step          1.00    9 %        1\n"
        "aten::relu                       0.40    4 %        4\n"
        "no operator running: Python      6.70   60 %\n"
        "\n"
        "Overhead: 1.0 % in the program (estimated), 2.7 % in layerscope's processes (drainer 1.5 %, converter 1.0 %,\n"
        "  session 0.2 %); 6.40 MB in x.layerscope\n"
        "Next: layerscope report\n"
    )


def test_what_the_scheduler_the_disk_and_a_limit_had_to_do_with_it_is_said() -> None:
    recording = training()
    for name, a_step in (
        ("switches_voluntary", 20),
        ("switches_forced", 10),
        ("migrations", 2),
        ("delay_ns", 5 * MS),
    ):
        readings = [(S + at * 10 * MS, at * a_step) for at in range(14)]
        recording.add_counter(0, name, readings, "ns" if name == "delay_ns" else "count")
    recording.add_counter(0, "throttled", [(0, 0), (2 * S, 12)], domain="cgroup")
    recording.add_counter(0, "throttled_ns", [(0, 0), (2 * S, 640 * MS)], "ns", "cgroup")
    recording.add_counter(0, "rss_peak_bytes", [(S, 900_000_000)], "bytes")
    recording.add_counter(0, "storage_read_bytes", [(S, 12_000_000)], "bytes")
    recording.add_counter(0, "storage_written_bytes", [(S, 999)], "bytes")
    for number in range(12):
        recording.add_sample(None, 6 * MS, S + number * 10 * MS, step=number)
        recording.add_sample(
            None, 4 * MS, S + number * 10 * MS, step=number, kind="offcpu", state="pipe"
        )

    lines = text_of(recording).splitlines()

    facts = [line[45:] for line in lines[3:12]]
    assert facts[2:] == [
        "CPU 22.2 ms a step: 2.0 of 4 CPUs busy, 5.55 ms in the kernel",
        "switches 33.3 a step, 11.1 forced, 2.2 to another CPU",
        "waiting for a CPU 5.55 ms a step, all threads (contention)",
        "throttled 12 times, 640 ms: its control group has too few CPUs",
        "page faults 333 a step, none from disk",
        "memory 351 MB at the end, not growing, at most 900 MB",
        "disk: read 12.0 MB in the whole run",
    ]
    assert "Training thread: 54 % running, 36 % waiting for pipes, 10 % not sampled" in lines


def test_a_main_thread_that_hardly_waited_is_not_worth_a_line() -> None:
    recording = Recording()
    recording.add_sample(None, 99 * MS)
    recording.add_sample(None, MS, kind="offcpu", state="sleep")

    assert "Main thread" not in text_of(recording)
    recording.add_sample(None, 10 * MS, kind="offcpu", state="sleep")
    assert "Main thread: 90 % running, 10 % sleeping\n" in text_of(recording)


def test_a_run_without_steps_says_so_and_shows_totals() -> None:
    recording = Recording()
    for number in range(12):
        recording.add_span(f"op{number}", 0, (number + 1) * MS)

    lines = text_of(recording).splitlines()

    assert "No step was found (no optimizer, data loader, module call or mark)" in lines[2]
    assert "CPU 2.00 s: 1.0 of 4 CPUs busy, 200 ms in the kernel" in lines[3]
    assert "page faults 5,000, 2 from disk" in lines[4]
    assert "memory at most 300 MB" in lines[5]
    assert lines[7].split() == ["Operator", "(self", "time)", "ms", "share", "calls"]
    assert lines[8].split() == ["op11", "12.0", "15", "%", "1"]
    assert lines[18].split("  ")[0] == "2 more"
    assert lines[18].endswith("layerscope table operators")


def test_a_crash_names_the_signal_and_what_was_running() -> None:
    recording = Recording()
    worker = recording.add_thread(0, 101, "worker")
    outer = recording.add_span("training", 0, 100, track=worker, unfinished=True)
    inner = recording.add_span("MyFunction", 10, 90, outer, unfinished=True)
    recording.add_span("aten::mm", 20, 80, inner, unfinished=True)

    printed = text_of(recording, exit=ExitState(signal=11))

    assert "examples/train.py, ended by SIGSEGV, 2.00 s." in printed
    assert "Running when the program was ended, outermost first:\n" in printed
    assert "  worker 101: training > MyFunction > aten::mm\n" in printed


def test_nothing_recorded_is_a_sentence_with_the_reason() -> None:
    recording = Recording()
    recording.add_problem(
        "operators", "torch 9.9 keeps its records differently", "update layerscope", "operators"
    )

    printed = text_of(recording)

    assert "No operators were recorded.\n" in printed
    expected = "Not recorded: operators, because torch 9.9 keeps its records differently; update layerscope.\n"
    assert expected in printed
    assert "A step takes" not in printed
    assert printed.endswith("Next: layerscope report\n")


def test_a_program_without_operators_is_told_so() -> None:
    assert (
        "No operators were recorded: the program called none that layerscope could see.\n"
        in text_of(Recording())
    )


@pytest.mark.parametrize(
    ("is_lossy", "said"), [(False, "are exact. To"), (True, "are exact but for what was lost. To")]
)
def test_what_was_kept_is_said(is_lossy: bool, said: str) -> None:
    kept = show._kept(
        Thinned(steps=20, kept_steps=5, spans=4_000_000, kept_spans=1_000_000), is_lossy
    )
    assert kept.startswith(
        "Kept in detail: 5 of 20 steps, 1.00 of 4.00 million spans; the sums above"
    )
    assert said in kept


def test_losses_are_counted() -> None:
    recording = training()
    recording.add_gap("ring_full", 1204, track=0)

    assert "Lost: 1,204 records on 1 thread, because" in text_of(recording)


def test_an_unknown_cost_is_not_called_free() -> None:
    printed = text_of(
        training(),
        layers=[LayerState("operators", "recorded")],
        cost=RecordingCost(raw_bytes=1_000_000),
    )

    assert "Overhead: not measured in the program; 1.00 MB in x.layerscope\n" in printed


def test_the_warm_up_of_several_processes_is_not_called_the_first_steps() -> None:
    recording = training()
    recording.process = recording.add_process(200)
    for number in range(12):
        recording.add_step(number, S + number * 10 * MS, (0, 9 * MS, 0, 0, 0), warmup=number < 1)

    assert (
        "24 steps in 2 processes, the first ones of each process, 3 in all, excluded (warm-up)."
        in text_of(recording)
    )


def test_beside_a_short_program_our_processes_are_counted_in_time() -> None:
    printed = text_of(training(), program=ProgramState(S, 40 * MS, 10 * MS))

    assert (
        "54.0 ms of CPU in layerscope's processes (drainer 30.0 ms, converter 20.0 ms, session 4.00 ms)"
        in " ".join(printed.split())
    )


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (
            {"command": ["python3.11", "-u", "-W", "error", "train.py", "x"]},
            "layerscope: train.py, exit 0",
        ),
        (
            {"command": ["/usr/bin/python", "-m", "package.train", "--lr", "1"]},
            "layerscope: python -m package.train, exit 0",
        ),
        ({"command": ["./mlp", "64", "128"]}, "layerscope: ./mlp, exit 0"),
        ({"command": ["python"]}, "layerscope: python, exit 0"),
        (
            {"command": ["/usr/bin/python3", "-u", "-c", "import x"]},
            "layerscope: /usr/bin/python3, exit 0",
        ),
        ({"command": []}, "layerscope: unknown program, exit 0"),
        ({"exit": ExitState(code=3)}, "train.py, exit 3, 2.00 s."),
        ({"exit": ExitState(signal=250)}, "train.py, ended by signal 250, 2.00 s."),
        ({"exit": ExitState(), "state": "running"}, "train.py, still running, 2.00 s."),
        (
            {"exit": ExitState(), "state": "killed"},
            "train.py, end unknown because the recording was cut off, 2.00 s.",
        ),
        ({"program": ProgramState()}, "train.py, exit 0.\n"),
        ({"versions": {}}, "train.py, exit 0, 2.00 s.\n"),
    ],
)
def test_the_header_says_what_ran_and_how_it_ended(info: dict[str, Any], expected: str) -> None:
    assert expected in text_of(Recording(), **info).replace("   ", "\n")


def test_threads_that_ran_at_the_same_time_explain_shares_over_a_hundred() -> None:
    recording = training()
    worker = recording.add_thread(0, 101, "worker")
    for number in range(12):
        recording.add_span("copy", S + number * 10 * MS, 9 * MS, step=number, track=worker)

    assert "The shares add up to more than 100 %: several threads" in text_of(recording)


def test_operators_of_an_engine_that_take_longer_than_their_step_are_no_threads_of_the_program() -> (
    None
):
    recording = training()
    worker = recording.add_thread(0, 101, "worker")
    for number in range(12):
        start_ns = S + number * 10 * MS
        recording.add_span("dot", start_ns, MS, layer="api", kind="submit", step=number)
        recording.add_span("dot", S + number * 30 * MS, 30 * MS, step=number, track=worker)

    text = " ".join(text_of(recording).split())

    assert "an engine executes the operators that a step submits, several at" in text
    assert "several threads ran" not in text
    assert "no operator running" not in text


def test_a_rare_fault_is_not_rounded_to_none() -> None:
    recording = training()
    recording.rows["counters"] = [
        row for row in recording.rows["counters"] if row["name"] != "faults_major"
    ]
    recording.add_counter(0, "faults_major", [(0, 0), (2 * S, 1)])

    assert "page faults 333 a step, <0.1 from disk" in text_of(recording)


def test_half_a_cpu_is_written_as_it_is() -> None:
    assert "CPU 22.2 ms a step: 2.0 of 2.5 CPUs busy" in text_of(
        training(), host={"cpu": {"granted": 2.5}}
    )


def test_operators_outside_the_steps_are_not_passed_over() -> None:
    recording = training()
    recording.add_span("setup", 0, 80 * MS)

    assert "Not included: 60 % of all operator time: between and around the steps" in text_of(
        recording
    )


@pytest.mark.parametrize(("outside_ms", "is_said"), [(150, False), (400, True)])
def test_who_repeats_something_else_is_told_how_to_have_it_taken_for_the_steps(
    outside_ms: int, is_said: bool
) -> None:
    recording = training()
    recording.add_span("replay", 0, outside_ms * MS)

    assert (
        "is what repeats, have it taken for the steps: run --step-mark" in text_of(recording)
    ) == (is_said)


def test_slower_steps_are_called_slower() -> None:
    recording = Recording()
    for number in range(9):
        recording.add_step(number, 100 * MS * number, (0, 10 * MS + number // 6 * 4 * MS, 0, 0, 0))

    assert "steps are 40 % slower in the last third, no outliers" in text_of(recording)


def test_steps_with_outliers_are_not_called_steady() -> None:
    text = text_of(training())

    assert "no drift; 1 of 10 steps above 2x the median, up to 29.1 ms" in text
    assert "steady" not in text


def test_no_line_is_wider_than_a_page() -> None:
    recording = training()
    recording.add_span("x" * 300, S + 30 * MS, MS, step=3)
    recording.add_span("a" * 200 + " b", 0, 5, unfinished=True)
    recording.add_problem("modules", "of a reason " * 30, "do something")

    lines = text_of(recording).splitlines()

    assert [line for line in lines if len(line) > 110 and " " in line.strip()] == []


def test_many_modules_take_two_lines() -> None:
    recording = Recording()
    names = [
        f"Network.some_block_{chr(97 + number)}.self_attention.projection" for number in range(10)
    ]
    recording.rows["modules"] = [
        {"module": number, "parent": None, "path": name, "class": "x"}
        for number, name in enumerate(names)
    ]
    for number in range(10):
        recording.add_span("aten::mm", 0, (number + 1) * MS, module=number)

    lines = text_of(recording).splitlines()

    first = next(
        number for number, line in enumerate(lines) if line.startswith("By module: some_block_j")
    )
    assert lines[first + 1].endswith("5 more 15.0")
    assert lines[first + 2] == ""

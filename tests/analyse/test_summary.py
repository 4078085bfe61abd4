"""The figures of the summary, on recordings whose answer can be computed by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse.summary import Summary, summarise
from layerscope.recording.reader import Reader
from layerscope.recording.run import ExitState, LayerState, ProgramState
from tests.recordings import MS, Recording, S

STEP = (1 * MS, 4 * MS, 3 * MS, 1 * MS, 1 * MS)


def summary_of(recording: Recording, **info: Any) -> Summary:
    with (
        tempfile.TemporaryDirectory() as folder,
        Reader(recording.write(Path(folder) / "x.layerscope", **info)) as reader,
    ):
        return summarise(reader)


def training(steps: int = 10, warmup: int = 2) -> Recording:
    """Steps of 10 ms one after the other from 1 s on: 2 ms convolution inside 3 ms conv, 1 ms in
    the optimizer.
    """
    recording = Recording()
    for number in range(steps):
        start_ns = S + number * 10 * MS
        recording.add_step(number, start_ns, STEP, warmup=number < warmup)
        conv = recording.add_span("conv", start_ns + MS, 3 * MS, step=number)
        recording.add_span("convolution", start_ns + MS, 2 * MS, conv)
        recording.add_span(
            "Optimizer.step#SGD.step", start_ns + 8 * MS, MS, step=number, kind="optimizer"
        )
    return recording


def test_a_step_is_the_mean_of_those_after_the_warm_up() -> None:
    recording = training(steps=0)
    for number, forward in enumerate((90, 1, 1, 1, 5)):
        recording.add_step(
            number, 100 * MS * number, (0, forward * MS, 0, 0, MS), warmup=number == 0
        )

    steps = summary_of(recording).steps

    assert steps is not None
    assert (steps.count, steps.warmup, steps.rule, steps.processes) == (5, 1, "optimizer", 1)
    assert (steps.mean_ns, steps.p50_ns, steps.p95_ns) == (3 * MS, 2 * MS, 6 * MS)
    assert steps.phases_ns == {
        "loading": 0,
        "forward": 2 * MS,
        "backward": 0,
        "optimizer": 0,
        "other": MS,
    }
    assert (steps.outliers, steps.slowest_ns) == (1, 6 * MS)
    assert steps.drift is None  # four steps show no trend


def test_drift_is_the_last_third_against_the_first() -> None:
    recording = training(steps=0)
    for number in range(9):
        recording.add_step(number, 100 * MS * number, (0, 10 * MS + number // 6 * 5 * MS, 0, 0, 0))

    steps = summary_of(recording).steps

    assert steps is not None
    assert steps.drift == 1.5


def test_operators_are_self_time_and_calls_of_a_measured_step() -> None:
    recording = training()
    recording.add_span("setup", 0, 500 * MS)

    operators = summary_of(recording).operators

    assert operators is not None
    assert [(row.name, row.self_ns, row.share, row.calls) for row in operators.rows] == [
        ("convolution", 2 * MS, 0.2, 1),
        ("conv", 1 * MS, 0.1, 1),
        ("Optimizer.step#SGD.step", 1 * MS, 0.1, 1),
    ]
    assert (operators.rest_names, operators.rest.self_ns) == (0, 0)
    assert operators.idle_ns == 6 * MS
    assert operators.outside_share == pytest.approx(500 / 540)


def test_time_of_other_threads_does_not_hide_that_the_thread_of_the_steps_is_idle() -> None:
    recording = training()
    worker = recording.add_thread(recording.process, 101, "worker")
    recording.add_span("copy", S + 50 * MS, 8 * MS, step=5, track=worker)

    operators = summary_of(recording).operators

    assert operators is not None
    assert operators.idle_ns == 6 * MS
    assert (
        next(row for row in operators.rows if row.name == "copy").self_ns == MS
    )  # 8 ms in 8 measured steps


def test_a_backward_pass_on_a_thread_of_its_own_is_work_of_the_step() -> None:
    recording = training()
    autograd = recording.add_thread(recording.process, 101, "pt_autograd_0")
    worker = recording.add_thread(recording.add_process(102), 102, "worker")
    for number in range(10):
        start_ns = S + number * 10 * MS
        backward = recording.add_span(
            "evaluate_function: MmBackward0", start_ns + 4 * MS, 3 * MS,
            step=number, track=autograd, kind="backward",
        )  # fmt: skip
        recording.add_span("mm", start_ns + 5 * MS, 2 * MS, parent=backward)
        recording.add_span("decode", start_ns, 5 * MS, step=number, track=worker)

    operators = summary_of(recording).operators

    assert operators is not None
    assert operators.idle_ns == 3 * MS


def test_operators_that_an_engine_executes_are_the_work_of_the_thread_that_submits_them() -> None:
    recording = training()
    engine = recording.add_thread(recording.process, 101, "engine")
    for number in range(10):
        start_ns = S + number * 10 * MS
        recording.add_span(
            "multiply", start_ns + 4 * MS, MS, step=number, kind="submit", layer="api"
        )
        recording.add_span("multiply", start_ns + 5 * MS, 2 * MS, step=number, track=engine)

    operators = summary_of(recording).operators

    assert operators is not None
    assert operators.idle_ns == 4 * MS


def test_the_ten_operators_with_the_most_self_time_and_the_rest_in_one() -> None:
    recording = Recording()
    for number in range(13):
        for _ in range(2):
            recording.add_span(f"op{number}", 0, 100 + number)

    operators = summary_of(recording).operators

    assert operators is not None
    assert [row.name for row in operators.rows] == [f"op{number}" for number in range(12, 2, -1)]
    assert (operators.rest_names, operators.rest.self_ns, operators.rest.calls) == (3, 2 * 303, 6)
    assert operators.rows[0].share == 224 / (2 * sum(range(100, 113)))
    assert operators.idle_ns is None


def test_steps_of_two_processes_are_averaged_together() -> None:
    recording = training(steps=4, warmup=0)
    second = recording.add_process(200)
    thread = recording.add_thread(second, 200, "python")
    for number in range(4):
        start_ns = S + number * 20 * MS
        recording.add_step(
            number, start_ns, (0, 20 * MS, 0, 0, 0), process=second, warmup=number == 0
        )
        recording.add_span("linear", start_ns, 7 * MS, step=number, track=thread)

    summary = summary_of(recording)

    assert summary.steps is not None
    assert summary.operators is not None
    assert (summary.processes, summary.steps.processes, summary.steps.warmup) == (2, 2, 1)
    assert summary.steps.mean_ns == pytest.approx((4 * 10 + 3 * 20) / 7 * MS)
    by_name = {row.name: row for row in summary.operators.rows}
    assert by_name["linear"].self_ns == pytest.approx(3 * 7 / 7 * MS)
    assert by_name["convolution"].calls == pytest.approx(4 / 7)


def test_resources_of_a_step_are_interpolated_over_all_processes() -> None:
    recording = training()  # measured from 1.02 to 1.1 s
    worker = recording.add_process(200, start_ns=S + 60 * MS)
    recording.add_counter(0, "cpu_ns", [(S, 0), (S + 100 * MS, 150 * MS), (2 * S, 9 * S)], "ns")
    recording.add_counter(0, "system_ns", [(S, 0), (S + 100 * MS, 10 * MS)], "ns")
    recording.add_counter(0, "faults_minor", [(0, 0), (2 * S, 2000)])
    recording.add_counter(worker, "cpu_ns", [(S + 80 * MS, 10 * MS), (S + 100 * MS, 10 * MS)], "ns")

    resources = summary_of(recording, host={"cpu": {"granted": 2}}).resources

    assert resources is not None
    assert resources.per_step
    # 80 of 100 ms of the first process, and the worker's 10 ms from its very start.
    assert resources.cpu_ns == pytest.approx((120 + 10) / 8 * MS)
    assert resources.busy_cpus == pytest.approx(130 / 80)
    assert (resources.cpus, resources.kernel_ns) == (2, pytest.approx(MS))
    assert resources.faults_minor == pytest.approx(10)
    assert resources.faults_major is None


def test_counters_of_the_programs_own_are_not_taken_for_those_of_the_system() -> None:
    recording = training()
    for domain, size in (("process", 100), ("mine", 100_000)):
        recording.add_counter(0, "cpu_ns", [(0, 0), (2 * S, size * MS)], "ns", domain)
        recording.add_counter(
            0, "rss_bytes", [(S + at * MS, size) for at in range(0, 100, 5)], "bytes", domain
        )

    summary = summary_of(recording)

    assert summary.resources is not None
    assert summary.memory is not None
    assert summary.resources.cpu_ns == pytest.approx(0.5 * MS)
    assert summary.memory.end_bytes == 100


def test_evaluation_between_the_steps_is_not_charged_to_them() -> None:
    recording = Recording()
    for number, start_ns in enumerate((0, 10 * MS, 980 * MS, 990 * MS)):
        recording.add_step(number, start_ns, STEP)
    recording.add_counter(0, "cpu_ns", [(0, 0), (S, S)], "ns")

    resources = summary_of(recording).resources

    assert resources is not None
    assert resources.cpu_ns == pytest.approx(10 * MS)


def test_without_steps_or_counters_the_resources_are_those_of_the_run() -> None:
    program = ProgramState(2 * S, 3 * S, S, 123_000_000, 77, 5)

    for recording in (Recording(), training()):
        summary = summary_of(recording, program=program)

        assert summary.resources is not None
        assert not summary.resources.per_step
        assert (summary.resources.cpu_ns, summary.resources.busy_cpus) == (4 * S, 2)
        assert (summary.resources.kernel_ns, summary.resources.faults_major) == (S, 5)
        assert summary.memory is not None
        assert (summary.memory.end_bytes, summary.memory.peak_bytes) == (None, 123_000_000)


def test_a_run_that_is_cut_off_has_no_resources_instead_of_zeros() -> None:
    summary = summary_of(Recording(), program=ProgramState())

    assert summary.resources is None
    assert summary.memory is None


@pytest.mark.parametrize(
    ("slope", "is_growing"), [(0, False), (1_000_000, False), (10_000_000, True)]
)
def test_memory_grows_when_the_last_third_holds_clearly_more_than_the_first(
    slope: int, is_growing: bool
) -> None:
    recording = training(steps=12, warmup=0)
    readings = [(S + number * 10 * MS, 300_000_000 + slope * number) for number in range(12)]
    recording.add_counter(0, "rss_bytes", [(0, 5), *readings, (3 * S, 0)], "bytes")

    memory = summary_of(recording).memory

    assert memory is not None
    assert memory.end_bytes == 300_000_000 + 11 * slope  # a dying process reads as 0
    assert (memory.growth_bytes, memory.is_growing) == (8 * slope, is_growing)


def test_a_program_that_was_only_seen_dying_has_no_memory_at_its_end() -> None:
    recording = Recording()
    recording.add_counter(0, "rss_bytes", [(S, 0)], "bytes")

    memory = summary_of(recording).memory

    assert memory is not None
    assert (memory.end_bytes, memory.peak_bytes) == (None, 300_000_000)


def test_few_readings_say_nothing_about_growth() -> None:
    recording = training()
    recording.add_counter(0, "rss_bytes", [(S, 100), (S + 90 * MS, 10**9)], "bytes")

    memory = summary_of(recording).memory

    assert memory is not None
    assert memory.growth_bytes is None


def test_switches_are_those_of_a_step_where_enough_was_read_and_else_of_the_run() -> None:
    recording = training()  # measured from 1.02 to 1.1 s
    for name, unit in (
        ("switches_voluntary", ""),
        ("switches_forced", ""),
        ("migrations", ""),
        ("delay_ns", "ns"),
    ):
        growth = {
            "switches_voluntary": 30,
            "switches_forced": 10,
            "migrations": 5,
            "delay_ns": 2 * MS,
        }[name]
        readings = [(S + at * MS, at // 20 * growth) for at in range(0, 121, 20)]
        recording.add_counter(0, name, readings, unit or "count")

    switches = summary_of(recording).switches

    assert switches is not None
    assert switches.per_step
    assert (switches.count, switches.forced, switches.migrations) == (
        pytest.approx(20),
        pytest.approx(5),
        2.5,
    )
    assert switches.delay_ns == pytest.approx(MS)

    recording.rows["counters"] = [
        row for row in recording.rows["counters"] if row["at_ns"] in (S, S + 120 * MS)
    ]
    program = ProgramState(2 * S, 3 * S, S, 1, 2, 3, switches_voluntary=400, switches_forced=77)
    switches = summary_of(recording, program=program).switches

    # The system's last word knows of threads that ended between two readings.
    assert switches is not None
    assert (switches.per_step, switches.count, switches.forced, switches.migrations) == (
        False,
        477,
        77,
        30,
    )
    switches = summary_of(recording, program=ProgramState(2 * S, 3 * S, S, 1, 2, 3)).switches
    assert switches is not None
    assert (switches.count, switches.forced, switches.delay_ns) == (240, 60, 12 * MS)


def test_without_stacks_or_an_end_there_are_no_switches_instead_of_zeros() -> None:
    assert summary_of(training()).switches is None


def test_limits_are_what_storage_and_the_control_group_say_of_the_run() -> None:
    recording = Recording()
    child = recording.add_process(200, ppid=100)
    for process, size in ((0, 900), (child, 300)):
        recording.add_counter(process, "storage_read_bytes", [(0, 5), (S, size)], "bytes")
    recording.add_counter(0, "throttled", [(0, 0), (S, 3)], domain="cgroup")
    recording.add_counter(0, "throttled_ns", [(0, 0), (S, S)], "ns", "cgroup")
    recording.add_counter(0, "throttled", [(0, 1), (S, 900)], domain="mine")

    limits = summary_of(recording).limits
    # The parent has what its child read, which it waited for.
    assert (limits.read_bytes, limits.write_bytes, limits.throttled, limits.throttled_ns) == (
        900,
        None,
        3,
        S,
    )
    program = ProgramState(storage_read_bytes=11, storage_written_bytes=12)
    limits = summary_of(recording, program=program).limits
    assert (limits.read_bytes, limits.write_bytes) == (11, 12)


def test_the_thread_of_the_steps_ran_and_waited_in_the_measured_ones() -> None:
    recording = training()  # eight measured steps of 10 ms
    pool = recording.add_thread(0, 101, "pool")
    for step in range(10):
        at_ns = S + step * 10 * MS
        recording.add_sample(None, 4 * MS, at_ns, step=step)
        recording.add_sample(None, MS, at_ns, step=step, state="kernel")
        recording.add_sample(None, 3 * MS, at_ns, step=step, kind="offcpu", state="pipe")
        recording.add_sample(None, MS, at_ns, step=step, kind="offcpu", state="gil")
        recording.add_sample(
            None, 10 * MS, at_ns, step=step, kind="offcpu", state="pool", idle=True, track=pool
        )
    recording.add_sample(None, S, 0, kind="offcpu", state="sleep")

    threads = summary_of(recording).threads

    assert threads is not None
    assert (threads.per_step, threads.threads) == (True, 1)
    assert threads.cpu == pytest.approx(0.5)
    assert threads.waits == [("pipe", pytest.approx(0.3)), ("gil", pytest.approx(0.1))]


def test_without_steps_it_is_the_main_thread_and_without_enough_samples_nobody() -> None:
    recording = Recording()
    worker = recording.add_thread(0, 101, "worker")
    recording.add_sample(None, 30 * MS, 0, step=None)
    recording.add_sample(None, 10 * MS, 0, kind="offcpu", state="lock")
    recording.add_sample(None, S, 0, kind="offcpu", state="pool", idle=True, track=worker)

    threads = summary_of(recording).threads

    assert threads is not None
    assert (threads.per_step, threads.cpu, threads.waits) == (False, 0.75, [("lock", 0.25)])
    assert summary_of(Recording()).threads is None
    recording = training()
    recording.add_sample(None, 39 * MS, S + 20 * MS, step=2)  # of 80 ms
    assert summary_of(recording).threads is None


def test_a_thread_that_hands_its_work_to_an_engine_makes_the_steps() -> None:
    """Where the user has marked them: the engine's own thread is the busiest."""
    recording = Recording()
    engine = recording.add_thread(0, 101, "engine")
    for number in range(3):
        start_ns = number * S
        recording.add_step(number, start_ns, STEP, rule="mark")
        recording.add_span(
            "dot", start_ns, MS, layer="api", kind="submit", step=number, parent=None
        )
        recording.add_span("dot", start_ns + MS, 60 * MS, step=number, track=engine)
        recording.add_sample(None, 20 * MS, start_ns, step=number)
        recording.add_sample(None, 60 * MS, start_ns, kind="offcpu", state="join", step=number)
        recording.add_sample(None, 60 * MS, start_ns, track=engine, step=number)

    threads = summary_of(recording).threads

    assert threads is not None
    assert [state for state, _ in threads.waits] == ["join"]


def test_open_operators_are_listed_for_each_thread_outermost_first() -> None:
    recording = Recording()
    worker = recording.add_thread(0, 101, "worker")
    inner_first = [("backward", 1), ("MyFunction", 2), ("range", 0)]
    for name, depth in inner_first:
        recording.add_span(name, 0, 10, unfinished=True, depth=depth, track=worker)
    recording.add_span("add", 0, 10, unfinished=True)
    recording.add_span("mul", 0, 10)

    found = summary_of(recording, exit=ExitState(signal=11)).open_operators

    assert [(thread.thread, thread.names) for thread in found] == [
        ("python 100", ["add"]),
        ("worker 101", ["range", "backward", "MyFunction"]),
    ]


def test_a_layer_that_says_why_it_failed_is_a_problem_even_without_a_row() -> None:
    layers = [
        LayerState("operators", "recorded"),
        LayerState("modules", "failed", problem="torch is too old"),
    ]

    problems = summary_of(Recording(), layers=layers).problems

    assert [(problem.layer, problem.what) for problem in problems] == [
        ("modules", "torch is too old")
    ]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefghijklmno"), st.integers(0, 10 * MS)),
        min_size=1,
        max_size=60,
    )
)
def test_the_rows_and_the_rest_are_all_the_self_time(calls: list[tuple[str, int]]) -> None:
    recording = Recording()
    for name, dur_ns in calls:
        recording.add_span(name, 0, dur_ns)

    operators = summary_of(recording).operators

    assert operators is not None
    whole = [*operators.rows, operators.rest]
    assert sum(row.self_ns for row in whole) == sum(dur_ns for _, dur_ns in calls)
    assert sum(row.calls for row in whole) == len(calls)
    assert [row.self_ns for row in operators.rows] == sorted(
        (row.self_ns for row in operators.rows), reverse=True
    )
    if any(dur_ns for _, dur_ns in calls):
        assert sum(row.share for row in whole) == pytest.approx(1)

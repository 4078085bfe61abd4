"""From what the sampler wrote to the tables: names, open spans, steps, waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope.rawfile import raw_file, sampler_file
from tests.ingest.raw_file import BACKWARD, EXECUTE, MODULE, RawFile
from tests.ingest.sampler_file import SamplerFile
from tests.ingest.test_convert import Converted, iteration

FUTEX, READ, POLL, SLEEP = 202, 0, 7, 230
MAIN, WORKER = 100, 101
LIBRARY = "[libnothing.so]"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def paths(made: Converted) -> dict[int, list[str]]:
    """The frames of every stack, as layer:name from the outside in."""
    rows = made.rows(
        "SELECT stack, parent, layer, name FROM stacks JOIN frames USING (frame) ORDER BY stack"
    )  # fmt: skip
    found: dict[int, list[str]] = {}
    for row in rows:
        around = found[row["parent"]] if row["parent"] is not None else []
        found[row["stack"]] = [*around, f"{row['layer']}:{row['name']}"]
    return found


def samples(made: Converted) -> list[dict[str, Any]]:
    """All samples, with their stack as a path."""
    path = paths(made)
    columns = "at_ns, tid, stack, weight_ns, s.count, s.kind, state, idle, exact, s.step, s.phase, p.name AS span"
    tables = "samples s JOIN tracks t USING (track) LEFT JOIN spans p USING (span)"
    rows = made.rows(f"SELECT {columns} FROM {tables} ORDER BY at_ns, state")
    return [{**row, "stack": path.get(row["stack"])} for row in rows]


def training(raw: Path) -> RawFile:
    """Three steps of a loop on the main thread; see `iteration`."""
    file = RawFile(raw, MAIN, 500)
    file.poll(600)
    records = [*file.thread_begin(900, MAIN, 1)]
    for at in (1000, 6000, 11000):
        records += iteration(file, at, at)
    file.records(0, records)
    file.end(20_000)
    return file


def test_a_sample_is_of_the_operators_module_step_and_phase_that_were_open(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stack = stacks.stack("main", "py:train", "py:step", "conv", "gemm")
    stacks.cpu(
        6800, 0, stack, 10_000_000
    )  # in aten::convolution in aten::conv2d of the second step
    stacks.cpu(6650, 0, stack, 10_000_000)  # in aten::conv2d alone
    stacks.cpu(7300, 0, stacks.stack("main", "py:train"), 7)  # between operators
    stacks.cpu(19_000, 0, stacks.stack("main", "py:train"), 9)  # behind the last step
    stacks.end(20_000)
    made = Converted(raw)

    around = ["native:[libnothing.so]", "python:train", "python:step"]
    inner = [f"native:{LIBRARY}"] * 2
    first, second, between, behind = samples(made)
    assert first["stack"] == [*around, "operators:aten::conv2d", *inner]
    assert (first["span"], first["step"], first["phase"]) == ("aten::conv2d", 1, "forward")
    assert second["stack"] == [
        *around,
        "operators:aten::conv2d",
        "operators:aten::convolution",
        *inner,
    ]
    assert (second["span"], second["tid"], second["weight_ns"]) == (
        "aten::convolution",
        MAIN,
        10_000_000,
    )
    assert between["stack"] == around[:2]
    assert (between["span"], between["step"], between["kind"], between["state"]) == (
        None,
        1,
        "cpu",
        "user",
    )
    assert (behind["step"], behind["phase"]) == (None, None)


def test_time_in_the_kernel_is_a_frame_of_its_own(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stack = stacks.stack("py:train", "copy")
    stacks.cpu(6800, 0, stack, 30, kernel_ns=20)
    stacks.cpu(6900, 0, stack, 5, kernel_ns=5)
    stacks.end(20_000)
    made = Converted(raw)

    found = [(row["weight_ns"], row["state"], row["stack"][-1]) for row in samples(made)]
    assert found == [(20, "kernel", "kernel:[kernel]"), (10, "user", f"native:{LIBRARY}"),
                     (5, "kernel", "kernel:[kernel]")]  # fmt: skip


def test_a_sample_counts_once_though_it_was_partly_in_the_kernel(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    for thread in (0, 1):
        stacks.thread(thread, MAIN + thread, 400)
    stack = stacks.stack("py:train", "copy")
    for thread in (0, 1):  # at the same moment
        stacks.cpu(6800, thread, stack, 30 + thread, kernel_ns=20)
    stacks.cpu(6900, 0, stack, 5, kernel_ns=5)
    stacks.cpu(6950, 0, stack, 7)
    stacks.end(20_000)

    # What is one sample is side by side, the time in the kernel last.
    found = [
        tuple(row.values())
        for row in Converted(raw).rows("SELECT weight_ns, state, count FROM samples")
    ]
    assert found == [(10, "user", 0), (20, "kernel", 1), (11, "user", 0), (20, "kernel", 1), (5, "kernel", 1),
                     (7, "user", 1)]  # fmt: skip


def test_waits_have_their_reason_and_page_faults_their_number(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stack = stacks.stack("py:train", "wait")
    stacks.wait(1100, 0, stack, 50, FUTEX)
    stacks.wait(1200, 0, stack, 60, READ, file=sampler_file.PIPE)
    stacks.wait(1300, 0, stack, 70, SLEEP, flags=0)
    stacks.wait(1400, 0, stack, 80, sampler_file.NO_SYSTEM_CALL)
    stacks.wait(
        1500,
        0,
        sampler_file.NONE,
        90,
        sampler_file.UNKNOWN_SYSTEM_CALL,
        flags=sampler_file.EXACT | sampler_file.PREEMPTED,
    )
    stacks.wait(1550, 0, stack, 95, POLL, file=sampler_file.SOCKET)
    stacks.faults(1600, 0, stack, 509)
    stacks.end(20_000)

    found = [
        (row["kind"], row["state"], row["weight_ns"], row["exact"], row["count"])
        for row in samples(Converted(raw))
    ]
    assert found == [
        ("offcpu", "lock", 50, True, 1), ("offcpu", "pipe", 60, True, 1), ("offcpu", "sleep", 70, False, 1),
        ("offcpu", "page_fault", 80, True, 1), ("offcpu", "preempted", 90, True, 1), ("offcpu", "socket", 95, True, 1),
        ("fault", "user", 0, False, 509),
    ]  # fmt: skip


def test_a_long_wait_that_came_in_parts_is_one(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.thread(1, WORKER, 400)
    stack, other = stacks.stack("py:train", "wait"), stacks.stack("py:train")
    goes_on = sampler_file.EXACT | sampler_file.UNFINISHED
    for at_ns, dur_ns, flags in (
        (1000, 100, goes_on),
        (1100, 100, goes_on),
        (1200, 30, sampler_file.EXACT),
    ):
        stacks.wait(at_ns, 0, stack, dur_ns, FUTEX, flags=flags)
        stacks.wait(at_ns, 1, stack, dur_ns, FUTEX, flags=flags)
    stacks.wait(1230, 0, stack, 5, FUTEX)  # begins where that one ended, which did not go on
    stacks.wait(2000, 1, stack, 10, FUTEX, flags=goes_on)
    stacks.wait(2010, 1, other, 10, FUTEX)
    stacks.end(20_000)

    found = [(row["tid"], row["at_ns"], row["weight_ns"]) for row in samples(Converted(raw))]
    assert sorted(found) == [
        (MAIN, 1000, 230), (MAIN, 1230, 5), (WORKER, 1000, 230), (WORKER, 2000, 10), (WORKER, 2010, 10)
    ]  # fmt: skip


def test_a_worker_is_charged_to_the_primitive_that_it_has_a_share_of(raw: Path) -> None:
    file = RawFile(raw, MAIN, 500)
    file.poll(600)
    module, call = (
        file.number("Net.conv\nConv2d\n/a/train.py:5"),
        file.number("cpu,convolution,jit,x,y,z,mb1"),
    )
    file.records(
        0,
        [
            *file.thread_begin(900, MAIN, 1),
            *file.span(1050, 1900, 2, "convolution", EXECUTE, args=call, module=module),
            *file.span(1010, 1950, 1, "aten::conv2d", module=module),
            *file.span(1000, 2000, 0, "Net.conv\nConv2d\n/a/train.py:5", MODULE, module=module),
        ],
    )
    file.records(
        1,
        [
            *file.thread_begin(1000, WORKER, 2),
            *file.span(1100, 1800, 0, "convolution", EXECUTE, args=call),
        ],
    )
    file.end(20_000)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.thread(1, WORKER, 950)
    stacks.cpu(1500, 1, stacks.stack("made:jit_conv_kernel"), 10)
    stacks.cpu(1600, 0, stacks.stack("py:train", "jit:4096"), 10)
    stacks.end(20_000)
    made = Converted(raw)

    worker, main = samples(made)
    chain = ["modules:Net.conv", "operators:aten::conv2d", "primitives:convolution"]
    assert worker["stack"] == [*chain, "native:jit_conv_kernel"]
    assert main["stack"] == ["python:train", *chain, "native:[jit]"]
    assert (worker["tid"], main["tid"]) == (WORKER, MAIN)


def test_a_backward_function_is_of_the_module_that_its_operator_ran_in(raw: Path) -> None:
    file = RawFile(raw, MAIN, 500)
    file.poll(600)
    module = file.number("Net.conv\nConv2d\n/a/train.py:5")
    file.records(
        0,
        [
            *file.thread_begin(900, MAIN, 1),
            *file.span(1010, 1950, 1, "aten::conv2d", module=module, seq=7),
            *file.span(1000, 2000, 0, "Net.conv\nConv2d\n/a/train.py:5", MODULE, module=module),
        ],
    )
    inner = [
        *file.span(3200, 3700, 2, "aten::convolution_backward"),
        *file.span(3100, 3800, 1, "ConvolutionBackward0", BACKWARD, seq=7, forward_thread=1),
        *file.span(
            3000, 3900, 0, "evaluate ConvolutionBackward0", BACKWARD, seq=7, forward_thread=1
        ),
    ]
    file.records(1, [*file.thread_begin(2500, WORKER, 2), *inner])
    file.end(20_000)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, WORKER, 2400)
    stacks.cpu(3500, 0, stacks.stack("main", "gemm"), 10)
    stacks.end(20_000)

    (sample,) = samples(Converted(raw))
    names = ["evaluate ConvolutionBackward0", "ConvolutionBackward0", "aten::convolution_backward"]
    assert [frame for frame in sample["stack"] if not frame.startswith("native:")] == [
        "modules:Net.conv", *(f"operators:{name}" for name in names),
    ]  # fmt: skip


def test_threads_that_only_the_sampler_saw_become_tracks_and_others_keep_theirs(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.thread(1, 555, 700, 9000, b"pool worker")
    stacks.cpu(1500, 1, stacks.stack("work"), 10)
    stacks.cpu(1600, 0, stacks.stack("py:train"), 10)
    stacks.end(20_000)
    made = Converted(raw)

    threads = made.rows("SELECT * FROM tracks WHERE kind = 'thread' ORDER BY tid")
    assert [(row["tid"], row["name"], row["start_ns"], row["end_ns"], row["process"]) for row in threads] == [
        (MAIN, "", 900, None, 0), (555, "pool worker", 700, 9000, 0)
    ]  # fmt: skip
    assert made.rows("SELECT count(DISTINCT track) AS n FROM tracks") == [{"n": 2}]


def test_samples_that_cannot_be_are_left_out_and_said(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.cpu(2500, 0, stacks.stack("py:work"), 10)
    stacks.cpu(2600, 0, 99, 10)  # no such stack
    stacks.cpu(2700, 7, sampler_file.NONE, 10)  # no such thread
    stacks.end(20_000)
    made = Converted(raw)

    assert [row["at_ns"] for row in samples(made)] == [2500]
    (problem,) = made.rows("SELECT what FROM problems WHERE code = 'samples_rejected'")
    assert problem["what"].startswith("2 samples name a thread or a stack")


def test_a_caller_that_is_no_place_in_a_program_has_no_address(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.cpu(2500, 0, stacks.stack(f"jit:{2**64 - 1}", "jit:4096", "py:work"), 10)
    stacks.end(20_000)
    made = Converted(raw)

    assert made.rows("SELECT address FROM frames WHERE name = '[jit]' ORDER BY frame") == [
        {"address": None}, {"address": 4096},
    ]  # fmt: skip


def test_it_is_said_that_a_gpu_was_used(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.cpu(2500, 0, stacks.stack("py:work", "made:cudaLaunchKernel"), 10)
    stacks.end(20_000)

    assert Converted(raw).table("problems", "layer", "code") == [("stacks", "gpu_unrecorded")]


def test_a_process_with_nothing_but_samples_is_one(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.process(1, 777, MAIN, 2000, 8000)
    stacks.thread(1, 777, 2000, 8000, b"helper", process=1)
    stacks.cpu(2500, 1, stacks.stack("py:work"), 10)
    stacks.end(20_000)
    made = Converted(raw)

    assert made.table("processes", "process", "pid", "ppid", "host", "argv", "start_ns", "end_ns") == [
        (0, MAIN, None, "machine-one", "python t.py", 500, 50_000), (1, 777, MAIN, "machine-one", "helper", 2000, 8000)
    ]  # fmt: skip
    (found,) = samples(made)
    assert (found["tid"], found["stack"], found["span"], found["step"]) == (
        777,
        ["python:work"],
        None,
        None,
    )
    assert made.rows("SELECT process FROM tracks WHERE tid = 777") == [{"process": 1}]


def test_threads_are_known_by_their_numbers_in_whatever_order_they_come(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.process(1, 777, MAIN, 2000, 8000)
    stacks.thread(1, 777, 2000, 8000, b"helper", process=1)
    stacks.thread(0, MAIN, 400)
    stacks.cpu(2500, 1, stacks.stack("py:work"), 10)
    stacks.cpu(2600, 0, stacks.stack("py:train"), 10)
    stacks.account(8000, 1, 70, 9, 0, 0, 3, 0, 4, 0)
    stacks.end(20_000)
    made = Converted(raw)

    of_samples = made.rows(
        "SELECT pid FROM samples JOIN tracks USING (track) JOIN processes USING (process) ORDER BY at_ns"
    )
    assert [row["pid"] for row in of_samples] == [777, MAIN]
    assert made.rows("SELECT tid, cpu_ns FROM tracks WHERE cpu_ns IS NOT NULL") == [
        {"tid": 777, "cpu_ns": 70}
    ]


def test_a_child_that_runs_another_program_is_one_process_with_one_thread(raw: Path) -> None:
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.process(1, 777, MAIN, 2000, 3000)
    stacks.thread(1, 777, 2000, 3000, b"python", process=1)
    stacks.process(2, 777, MAIN, 3000, 8000)
    stacks.thread(2, 777, 3000, 8000, b"helper", process=2)
    stacks.process(3, 777, MAIN, 9000, 9500)  # the number was given again
    stacks.thread(3, 777, 9000, 9500, b"other", process=3)
    for at_ns, thread in ((2500, 1), (4000, 2), (9100, 3)):
        stacks.cpu(at_ns, thread, stacks.stack("py:work"), 10)
    stacks.account(3000, 1, 5, 1, 0, 0, 1, 0, 1, 0)
    stacks.account(8000, 2, 70, 9, 0, 0, 3, 0, 4, 0)
    stacks.end(20_000)
    made = Converted(raw)

    assert made.table("processes", "process", "pid", "argv", "end_ns")[1:] == [
        (1, 777, "helper", 8000), (2, 777, "other", 9500)
    ]  # fmt: skip
    threads = made.rows(
        "SELECT process, name, start_ns, end_ns, cpu_ns FROM tracks WHERE tid = 777 ORDER BY start_ns"
    )
    assert threads == [
        {"process": 1, "name": "helper", "start_ns": 2000, "end_ns": 8000, "cpu_ns": 70},
        {"process": 2, "name": "other", "start_ns": 9000, "end_ns": 9500, "cpu_ns": None},
    ]
    of_samples = made.rows("SELECT process FROM samples JOIN tracks USING (track) ORDER BY at_ns")
    assert [row["process"] for row in of_samples] == [1, 1, 2]


def test_accounts_are_totals_of_threads_and_counters_of_the_process(raw: Path) -> None:
    file = training(raw)
    file.sample(5000, 11, 22, 33, 44, 55, 66, 77)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    stacks.thread(1, WORKER, 950)
    for thread in (0, 1):
        stacks.cpu(1500, thread, stacks.stack("work"), 10)
    stacks.account(1000, 0, 100, 10, 0, 0, 5, 1, 20, 0, migrations=1)
    stacks.account(1000, 1, 50, 5, 0, 0, 2, 0, 7, 0)
    stacks.account(2000, 0, 300, 30, 0, 0, 9, 3, 40, 1, migrations=4)
    stacks.end(20_000)
    made = Converted(raw)

    columns = (
        "tid", "cpu_ns", "delay_ns", "switches_voluntary", "switches_forced", "migrations", "faults_minor",
        "faults_major",
    )  # fmt: skip
    of_tracks = [row for row in made.table("tracks", *columns) if row[0] is not None]
    assert of_tracks == [(MAIN, 300, 30, 9, 3, 4, 40, 1), (WORKER, 50, 5, 2, 0, 0, 7, 0)]
    counted = made.table("counters", "name", "at_ns", "value", order="ALL")
    assert [row for row in counted if row[0] in ("delay_ns", "switches_forced", "migrations")] == [
        ("delay_ns", 1000, 15), ("delay_ns", 2000, 35), ("migrations", 1000, 1), ("migrations", 2000, 4),
        ("switches_forced", 1000, 1), ("switches_forced", 2000, 3),
    ]  # fmt: skip


def test_what_the_system_does_not_account_is_absent(raw: Path) -> None:
    """Migrations are told with switches alone, and not every kernel says how long threads wait for
    a CPU.
    """
    file = training(raw)
    file.sample(5000, 11, 22, 33, 44, 55, 66, 77)
    stacks = SamplerFile(raw, MAIN, switches=False)
    stacks.thread(0, MAIN, 400)
    stacks.cpu(1500, 0, stacks.stack("work"), 10)
    stacks.account(1000, 0, 100, 0, 0, 0, 5, 1, 20, 0)
    stacks.end(20_000)
    made = Converted(raw)

    assert made.rows(
        "SELECT cpu_ns, delay_ns, switches_forced, migrations FROM tracks WHERE kind = 'thread'"
    ) == [{"cpu_ns": 100, "delay_ns": None, "switches_forced": 1, "migrations": None}]
    names = {row["name"] for row in made.rows("SELECT name FROM counters")}
    assert {"switches_voluntary", "switches_forced"} <= names
    assert not {"delay_ns", "migrations"} & names


def test_samples_of_a_program_without_spans_and_of_a_cut_file_are_there(raw: Path) -> None:
    file = RawFile(raw, MAIN, 500)
    file.poll(600)
    file.end(20_000)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    for at_ns in range(1000, 1100, 10):
        stacks.cpu(at_ns, 0, stacks.stack("py:main", "py:work"), 10)
    whole = raw / raw_file.SAMPLER_FILE
    whole.write_bytes(
        whole.read_bytes()[:-20]
    )  # the sampler was killed in the middle of its last sample
    made = Converted(raw)

    found = samples(made)
    assert len(found) == 9
    assert {tuple(row["stack"]) for row in found} == {("python:main", "python:work")}
    assert made.table("problems", "layer", "code") == [("stacks", "stacks_cut")]


def test_what_another_sampler_wrote_goes_on_where_the_first_was_killed(raw: Path) -> None:
    training(raw)
    first, second = SamplerFile(raw, MAIN), SamplerFile(raw, MAIN, name="stacks.1")
    for at_ns, stacks in ((6800, first), (7300, second)):
        stacks.thread(0, MAIN, 400)
        stacks.thread(1, WORKER, 500)
        stacks.cpu(at_ns, 0, stacks.stack("main", "py:train"), 7)
        stacks.cpu(at_ns, 1, stacks.stack("main", "py:work"), 5)
    second.end(20_000)
    made = Converted(raw)

    rows = samples(made)
    assert [(row["at_ns"], row["tid"], row["weight_ns"]) for row in rows if row["tid"] == MAIN] == [
        (6800, MAIN, 7), (7300, MAIN, 7),
    ]  # fmt: skip
    assert {tuple(row["stack"][:2]) for row in rows if row["tid"] == WORKER} == {
        (f"native:{LIBRARY}", "python:work")
    }
    assert made.rows("SELECT tid, count(*) AS n FROM samples JOIN tracks USING (track) GROUP BY tid ORDER BY tid") == [
        {"tid": MAIN, "n": 2}, {"tid": WORKER, "n": 2},
    ]  # fmt: skip
    assert made.rows("SELECT count(*) AS n FROM tracks WHERE tid IS NOT NULL") == [{"n": 2}]


def test_without_a_sampler_the_tables_are_empty_and_nobody_complains(raw: Path) -> None:
    training(raw)
    made = Converted(raw)

    assert [made.conversion.rows[name] for name in ("samples", "stacks", "frames")] == [0, 0, 0]
    assert made.table("problems", "code") == []

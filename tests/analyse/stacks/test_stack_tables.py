"""The tables functions, lines, symbols and waits: hand-computed answers, and sums that are
exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from layerscope.analyse import tables
from layerscope.analyse.result import Result
from layerscope.analyse.stacks.by_frame import effective_samples, interval
from layerscope.analyse.top_functions import top_functions
from layerscope.model.errors import UsageError
from layerscope.show.function_lines import function_lines
from tests.analyse.stacks.made import opened, partly_in_kernel, random_recording, sampled
from tests.recordings import Recording

MAIN = ("native start libc.so", "python <module> train.py:9", "python main train.py:5")


def result_of(recording: Recording, table: str, by: str | None = None) -> Result:
    with opened(recording) as reader:
        result = tables.build(reader, table, by)
        assert result.data is not None
    return result


def rows(
    recording: Recording, table: str, by: str | None = None, *names: str
) -> list[tuple[Any, ...]]:
    data = result_of(recording, table, by).data.to_pylist()
    return [tuple(row[name] for name in names) if names else tuple(row.values()) for row in data]


def made() -> Recording:
    """Of 1000 ns: 600 in step (of them 200 in a native function, 300 in a deeper call of itself),
    250 in load, 150 of a worker; waits of 70 in load, of 30 in the worker, and 500 idle.
    """
    recording = Recording()
    worker = recording.add_thread(recording.process, 102, "worker")
    step = recording.add_stack(*MAIN, "python step a.py:3", "modules Net", "operators aten::mm")
    inside = recording.add_stack(*MAIN, "python step a.py:3", "native gemm /usr/lib/libmkl.so")
    deeper = recording.add_stack(*MAIN, "python step a.py:3", "python step a.py:4")
    load = recording.add_stack(
        *MAIN, "python load b.py:7", "native read /usr/lib/libc.so", "kernel kernel"
    )
    of_worker = recording.add_stack("native start libc.so", "native gemm /usr/lib/libmkl.so")
    for stack, weight in ((step, 100), (inside, 200), (deeper, 300), (load, 250)):
        recording.add_sample(stack, weight, step=1)
    recording.add_sample(of_worker, 150, track=worker)
    recording.add_sample(load, 70, kind="offcpu", state="pipe", step=2, exact=True)
    recording.add_sample(of_worker, 30, kind="offcpu", state="barrier", track=worker, exact=False)
    recording.add_sample(of_worker, 500, kind="offcpu", state="pool", track=worker, idle=True)
    return recording


def test_functions() -> None:
    names = ("name", "file", "self_ns", "total_ns", "wait_ns", "samples")
    assert rows(made(), "functions", None, *names) == [
        ("step", "a.py", 600, 600, 0, 3),
        ("load", "b.py", 250, 250, 70, 1),
        ("outside Python", None, 150, 150, 30, 1),
        ("<module>", "train.py", 0, 850, 0, 0),
        ("main", "train.py", 0, 850, 0, 0),
    ]
    shares = rows(made(), "functions", None, "self_share", "total_share")
    assert shares[:4] == [(0.6, 0.6), (0.25, 0.25), (0.15, 0.15), (0.0, 0.85)]
    notes = result_of(made(), "functions").notes
    assert notes == ("500 ns that threads of pools waited without work are not in wait_ns.",)


def test_lines() -> None:
    assert rows(made(), "lines", None, "line", "function", "self_ns", "total_ns") == [
        ("a.py:3", "step", 300, 600), ("a.py:4", "step", 300, 300), ("b.py:7", "load", 250, 250),
        ("outside Python", None, 150, 150), ("train.py:9", "<module>", 0, 850), ("train.py:5", "main", 0, 850),
    ]  # fmt: skip


def test_symbols() -> None:
    assert rows(made(), "symbols", None, "name", "object", "self_ns", "total_ns", "wait_ns") == [
        ("outside native code", None, 400, 400, 0),
        ("gemm", "/usr/lib/libmkl.so", 350, 350, 30),
        ("kernel", None, 250, 250, 70),
        ("start", "libc.so", 0, 1000, 0),
        ("read", "/usr/lib/libc.so", 0, 250, 0),
    ]
    assert rows(made(), "symbols", "object", "object", "self_ns", "total_ns") == [
        ("outside native code", 400, 400), ("/usr/lib/libmkl.so", 350, 350), ("kernel", 250, 250),
        ("libc.so", 0, 1000), ("/usr/lib/libc.so", 0, 250),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            "thread",
            [
                ("python 100", "step", 600),
                ("python 100", "load", 250),
                ("worker 102", "outside Python", 150),
            ],
        ),
        ("step", [(1, "step", 600), (1, "load", 250), (None, "outside Python", 150)]),
        ("module", [("outside any module", "step", 500), ("outside any module", "load", 250)]),
        (
            "operator",
            [("outside any operator", "step", 500), ("outside any operator", "load", 250)],
        ),
    ],
)
def test_by(by: str, expected: list[tuple[Any, ...]]) -> None:
    found = rows(made(), "functions", by, by, "name", "self_ns")
    assert [row for row in found if row[2]][: len(expected)] == expected
    assert sum(row[2] for row in found) == 1000
    assert sum(row[0] for row in rows(made(), "functions", by, "samples")) == 5
    of_net = [row for row in found if row[0] in ("Net", "aten::mm") and row[2]]
    assert of_net == (
        [({"module": "Net", "operator": "aten::mm"}[by], "step", 100)]
        if by in ("module", "operator")
        else []
    )


def test_total_is_by_group() -> None:
    found = rows(made(), "functions", "step", "step", "name", "total_ns", "wait_ns")
    assert (1, "main", 850, 0) in found
    assert (2, "load", 0, 70) in found


def test_waits() -> None:
    names = (
        "state",
        "thread",
        "function",
        "line",
        "symbol",
        "count",
        "total_ns",
        "share",
        "avg_ns",
        "max_ns",
        "exact_share",
    )
    assert rows(made(), "waits", None, *names) == [
        ("pipe", "python 100", "load (b.py)", "b.py:7", "kernel", 1, 70, 0.7, 70, 70, 1.0),
        ("barrier", "worker 102", "gemm", "outside Python", "gemm", 1, 30, 0.3, None, None, 0.0),
        ("idle", None, None, None, None, 1, 500, None, 500, 500, 1.0),
    ]
    assert rows(made(), "waits", "idle", "idle", "state", "thread", "total_ns")[-1] == (
        True,
        "pool",
        "worker 102",
        500,
    )
    assert rows(made(), "waits", "thread", "thread", "state", "total_ns") == [
        ("python 100", "pipe", 70), ("worker 102", "barrier", 30), ("worker 102", "idle", 500),
    ]  # fmt: skip
    assert rows(made(), "waits", "state", "state", "total_ns") == [
        ("pipe", 70),
        ("barrier", 30),
        ("pool", 500),
    ]
    assert rows(made(), "waits", "step", "step", "total_ns")[0] == (2, 70)


def test_a_wait_without_python_is_named_by_the_innermost_function_outside_of_the_c_library() -> (
    None
):
    recording = Recording()
    c_library = "/lib/x86_64-linux-gnu/libc.so.6"
    for frames in (
        (
            "native consume queue.so",
            f"native pthread_cond_wait {c_library}",
            f"native futex {c_library}",
        ),
        (f"native start_thread {c_library}",),
        ("python load b.py:7", "native fetch queue.so", f"native read {c_library}"),
    ):
        recording.add_sample(
            recording.add_stack(*frames), 10, kind="offcpu", state="lock", exact=True
        )

    found = rows(recording, "waits", None, "function", "symbol", "line")
    assert sorted(found) == [
        ("consume", "futex", "outside Python"),
        ("load (b.py)", "read", "b.py:7"),
        ("not known", "start_thread", "outside Python"),
    ]
    assert rows(recording, "waits", "function", "function", "count")[0][1] == 1


def test_of_a_native_program_the_functions_outside_of_the_c_library_are_shown_with_their_callees() -> (
    None
):
    recording = Recording()
    c_library = "/lib/x86_64-linux-gnu/libc.so.6"
    for frames, weight in (
        (
            (
                "native main /opt/scan",
                "native parse /opt/scan",
                f"native __vfscanf_internal {c_library}",
            ),
            70,
        ),
        (("native main /opt/scan", "native sin /lib/libm.so.6"), 20),
        (("native main /opt/scan",), 10),
    ):
        recording.add_sample(recording.add_stack("native _start /opt/scan", *frames), weight)

    with opened(recording) as reader:
        top = top_functions(reader)
    assert top is not None
    assert (top.table, top.is_total) == ("symbols", True)
    assert [(row.name, row.total_ns, row.self_ns) for row in top.rows] == [
        ("main", 100, 10),
        ("parse", 70, 0),
        ("sin", 20, 20),
    ]
    assert function_lines(top)[1].split() == ["main", "100", "ns", "100", "%", "10", "ns"]


@pytest.mark.parametrize("by", tables.load("waits").BY)
def test_waits_add_up_by_everything(by: str) -> None:
    assert sum(row[0] for row in rows(made(), "waits", by, "total_ns")) == 600
    assert sum(row[0] for row in rows(made(), "waits", by, "count")) == 3


def test_the_thread_that_ended_a_wait() -> None:
    recording = Recording()
    worker = recording.add_thread(recording.process, 102, "worker")
    get = recording.add_stack(*MAIN, "python get q.py:7")
    put, other, native = (
        recording.add_stack("native start libc.so", *more)
        for more in (["python put q.py:3"], ["python other q.py:9"], ["native memcpy libc.so"])
    )
    recording.add_sample(other, 10, track=worker, at_ns=100_000_000)
    recording.add_sample(put, 10, track=worker, at_ns=130_000_000)
    recording.add_sample(native, 10, track=worker, at_ns=190_000_000)
    # Ends at 121 ms: of two samples of the worker that of 130 ms is nearer. The next: 180 ms, and
    # none is near at 300.
    for at_ns, dur_ns, waker in ((71_000_000, 50_000_000, worker), (125_000_000, 55_000_000, worker),
                                 (260_000_000, 40_000_000, worker), (400_000_000, 20_000_000, None)):  # fmt: skip
        recording.add_sample(
            get, dur_ns, kind="offcpu", state="lock", exact=True, at_ns=at_ns, waker=waker
        )

    assert rows(recording, "waits", None, "line", "count", "waker", "waker_line") == [
        ("q.py:7", 4, "worker 102", "memcpy"),  # 55 ms: the longest
    ]
    assert rows(recording, "waits", "waker", "waker", "state", "count", "waker_line") == [
        ("worker 102", "lock", 3, "memcpy"), (None, "lock", 1, None),
    ]  # fmt: skip
    recording.rows["samples"][4]["weight_ns"] = 1000
    assert rows(recording, "waits", None, "waker_line") == [("q.py:3",)]


def test_a_wait_without_a_stack() -> None:
    recording = Recording()
    recording.add_sample(None, 5, kind="offcpu", state="socket", phase="loading")

    names = ("state", "line", "symbol")
    assert rows(recording, "waits", None, *names) == [("socket", "not known", "not known")]
    assert rows(recording, "waits", "operator", "operator") == [("not known",)]
    assert rows(recording, "waits", "phase", "phase") == [("loading",)]


@pytest.mark.parametrize("table", ["functions", "lines", "symbols", "waits"])
def test_without_samples_there_is_the_remedy(table: str) -> None:
    assert "--without stacks" in result_of(Recording(), table).sentences[-1]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["functions", "lines", "symbols"])
def test_self_times_add_up_to_all_that_was_sampled(table: str) -> None:
    random = np.random.default_rng(5)
    frames = [
        "python f a.py:1",
        "python g a.py:9",
        "modules Net",
        "operators op",
        "native n libn.so",
        "kernel kernel",
    ]
    samples = [
        (
            tuple(frames[number] for number in random.integers(0, 6, random.integers(1, 7))) if random.random() > 0.1
            else None,
            int(random.integers(1, 10**9)), ["cpu", "offcpu"][random.integers(0, 2)], "lock", False,
        )
        for _ in range(200)
    ]  # fmt: skip
    recording = random_recording(samples)
    cpu, waits = (
        sum(row["weight_ns"] for row in recording.rows["samples"] if row["kind"] == kind)
        for kind in ("cpu", "offcpu")
    )
    with opened(recording) as reader:
        for by in (None, *tables.load(table).BY):
            data = tables.build(reader, table, by).data
            assert sum(data["self_ns"].to_pylist()) == cpu
            assert sum(data["wait_ns"].to_pylist()) == waits
            assert all(own <= total for own, total in zip(
                data["self_ns"].to_pylist(), data["total_ns"].to_pylist(), strict=True))  # fmt: skip


def test_the_interval_of_a_share_is_wilsons() -> None:
    # 10 of 100: 5.5 % to 17.4 % (Newcombe 1998 gives Wilson's score interval for such counts).
    low, high = interval(np.array([0.1, 0.0, 1.0]), 100)
    assert low == pytest.approx([0.0552, 0.0, 0.9630], abs=1e-4)
    assert high == pytest.approx([0.1744, 0.0370, 1.0], abs=1e-4)
    assert interval(np.array([0.5]), 0)[0] == 0


def test_samples_of_different_weight_say_less() -> None:
    assert effective_samples(np.full(50, 7)) == pytest.approx(50)
    assert effective_samples(np.array([1000, 1, 1])) < 1.01
    assert effective_samples(np.zeros(0, np.int64)) == 0


def test_a_sample_that_was_partly_in_the_kernel_is_one() -> None:
    recording = partly_in_kernel(100)

    low, high = (float(one) for ends in interval(np.array([0.5]), 100) for one in ends)
    for table in ("functions", "lines"):
        found = rows(
            recording, table, None, "self_share", "samples", "self_share_low", "self_share_high"
        )[:2]
        assert found == [(0.5, 50, pytest.approx(low), pytest.approx(high))] * 2
    names = ("name", "self_share", "samples", "self_share_low", "self_share_high")
    assert rows(recording, "symbols", None, *names) == [
        (name, 0.5, 100, pytest.approx(low), pytest.approx(high)) for name in ("copy", "[kernel]")
    ]
    found = rows(recording, "functions", "operator", "name", "operator", "samples")
    assert [row for row in found if row[2]] == [("f", "aten::copy", 50), ("g", "aten::copy", 50)]


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(11)
    inside = 0
    for _ in range(500):
        hits = random.random(300) < 0.2
        weight = random.integers(9, 13, 300)
        share = np.array([weight[hits].sum() / weight.sum()])
        low, high = interval(share, effective_samples(weight))
        inside += int(low[0] <= 0.2 <= high[0])
    # 475 of 500 are expected; four standard deviations are 20.
    assert abs(inside - 475) < 4 * math.sqrt(500 * 0.95 * 0.05)


def test_mine_counts_what_libraries_do_for_the_line_that_called_them() -> None:
    library = "python loads /usr/lib/python3.11/json/__init__.py:299"
    recording = sampled(
        (("python main /job/train.py:9", "python read /job/data.py:4", library), 5),
        (("python main /job/train.py:9", "python read /job/data.py:4"), 1),
        (("python main /job/train.py:9", library), 3),
        ((library,), 2),
    )

    def mine(table: str, *columns: str) -> list[tuple[Any, ...]]:
        with opened(recording) as reader:
            found = tables.build(reader, table, is_mine=True).data.to_pylist()
        return [tuple(row[column] for column in columns) for row in found]

    assert mine("functions", "name", "self_ns") == [
        ("read", 6), ("main", 3), ("outside the program's own files", 2),
    ]  # fmt: skip
    assert mine("lines", "line", "self_ns") == [
        ("/job/data.py:4", 6), ("/job/train.py:9", 3), ("outside the program's own files", 2),
    ]  # fmt: skip
    with opened(recording) as reader, pytest.raises(UsageError, match="symbols has no --mine"):
        tables.build(reader, "symbols", is_mine=True)


@pytest.mark.parametrize("has_cpu", [True, False], ids=["with CPU time", "alone"])
def test_page_faults_are_counted_where_they_are(has_cpu: bool) -> None:
    """As files of perf have them alone."""
    recording = Recording()
    touch = recording.add_stack(*MAIN, "native touch a.so")
    inner = recording.add_stack(*MAIN, "native touch a.so", "native inner a.so")
    if has_cpu:
        recording.add_sample(touch, 100)
    recording.add_sample(touch, 0, kind="fault", count=100)
    recording.add_sample(inner, 0, kind="fault", count=50)

    found = rows(recording, "symbols", None, "name", "self_ns", "faults", "total_faults")
    own_ns = 100 if has_cpu else 0
    assert sorted(found) == [
        ("inner", 0, 50, 50),
        ("start", 0, 0, 150),
        ("touch", own_ns, 100, 150),
    ]
    assert found[0][0] == "touch"
    functions = rows(recording, "functions", None, "name", "faults", "total_faults")
    assert sorted(functions) == [("<module>", 0, 150), ("main", 150, 150)]
    by_thread = rows(recording, "symbols", "thread", "name", "thread", "faults")
    assert ("inner", "python 100", 50) in by_thread
    used = (100 if has_cpu else None, 150)
    assert rows(recording, "threads", None, "cpu_ns", "faults") == [used]


def test_time_without_a_stack_may_belong_to_any_row() -> None:
    """Ten of a hundred samples: the upper end has them, the lower end is of the others."""
    recording = Recording()
    work = recording.add_stack("python work train.py:3")
    for _ in range(90):
        recording.add_sample(work)
    for _ in range(10):
        recording.add_sample(None)

    names = ("name", "self_share_low", "self_share_high")
    found = rows(recording, "functions", None, *names)

    low, high = interval(np.array([1.0]), 90.0)
    known = (pytest.approx(0.9 * low[0]), pytest.approx(0.9 * high[0] + 0.1))
    unknown = (pytest.approx(0.1), pytest.approx(0.1))
    assert found == [("work", *known), ("not known", *unknown)]

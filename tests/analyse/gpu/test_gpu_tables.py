"""The tables of GPUs, with answers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import US, GpuRecording


def rows(reader: Reader, name: str, by: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.build(reader, name, by).data.to_pylist()
    return found


def in_us(row: dict[str, Any]) -> dict[str, Any]:
    """Only the times of a row, in microseconds."""
    return {name: value / US for name, value in row.items() if name.endswith("_ns")}


@pytest.fixture
def job(tmp_path: Path) -> Reader:
    """Two kernels and a copy on stream 7, a collective beside them on stream 8.

    gemm     10..30, 32..42      launched 0..5, 6..10
    nccl         25..50          launched 12..20
    copy                  75..85 launched 60..70
    memset                       90..95, launched by nobody
    """
    gpu = GpuRecording(rank=3)
    operator = gpu.recording.add_span("aten::mm", 0, 11 * US)
    first = gpu.call("cudaLaunchKernel", 0, 5)
    second = gpu.call("cudaLaunchKernel", 6, 4)
    third = gpu.call("cudaLaunchKernelExC", 12, 8)
    fourth = gpu.call("cudaMemcpyAsync", 60, 10)
    known = {"registers per thread": 32, "est. achieved occupancy %": 50}
    other = {"registers per thread": 64, "est. achieved occupancy %": 80}
    gpu.work(10, 20, launched_by=first, operator=operator, arguments=known)
    gpu.work(32, 10, launched_by=second, operator=operator, arguments=other)
    gpu.work(25, 25, "ncclDevKernel_AllReduce_Sum_f32", stream=8, launched_by=third)
    gpu.work(75, 10, "Memcpy HtoD", "memcpy", launched_by=fourth, arguments={"bytes": 20_000})
    gpu.work(90, 5, "Memset (Device)", "memset", arguments={"bytes": 5_000})
    return gpu.reader(tmp_path)


def test_the_time_of_a_gpu_is_divided(job: Reader) -> None:
    every, linked = rows(job, "gpu")

    assert (linked["rank"], linked["device"], linked["view"]) == (3, 0, "linked")
    assert linked["count"] == 4
    assert in_us(linked) == {
        "span_ns": 75,
        "busy_ns": 50,
        "idle_ns": 25,
        "compute_ns": 30,
        "communication_ns": 25,
        "exposed_communication_ns": 10,
        "copy_ns": 10,
        "exposed_copy_ns": 10,
    }
    assert linked["overlap_share"] == 0.6
    assert every["count"] == 5
    assert in_us(every)["span_ns"] == 85
    assert in_us(every)["copy_ns"] == 15


def test_a_collective_is_known_by_its_arguments(tmp_path: Path) -> None:
    gpu = GpuRecording()
    gpu.work(0, 10, "kernel_of_a_vendor", arguments={"Collective name": "allreduce"})
    gpu.work(20, 10, "void ncclKernel_Broadcast", stream=8)
    gpu.work(40, 10, "not_ncclosed", stream=9)

    with gpu.reader(tmp_path) as reader:
        found = rows(reader, "gpu")[0]

    assert found["rank"] == 0
    assert found["communication_ns"] == 20 * US
    assert found["compute_ns"] == 10 * US


def test_every_gpu_has_its_rows(tmp_path: Path) -> None:
    gpu = GpuRecording()
    gpu.work(0, 10)
    gpu.work(100, 10, device=1)

    with gpu.reader(tmp_path) as reader:
        found = rows(reader, "gpu")

    assert [(row["device"], row["view"], row["span_ns"]) for row in found] == [
        (0, "all", 10 * US), (0, "linked", 0), (1, "all", 10 * US), (1, "linked", 0),
    ]  # fmt: skip


def test_kernels_have_sums(job: Reader) -> None:
    found = {row["name"]: row for row in rows(job, "kernels")}

    gemm = found["gemm"]
    assert (gemm["kind"], gemm["count"], gemm["total_ns"]) == ("compute", 2, 30 * US)
    assert (gemm["avg_ns"], gemm["min_ns"], gemm["max_ns"]) == (15 * US, 10 * US, 20 * US)
    assert gemm["share"] == pytest.approx(30 / 70)
    assert gemm["occupancy"] == pytest.approx((0.5 * 20 + 0.8 * 10) / 30)
    assert gemm["registers"] == 64
    assert found["Memcpy HtoD"]["kind"] == "copy"
    assert found["Memcpy HtoD"]["registers"] is None


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("kind", {"compute": 30, "communication": 25, "copy": 15}),
        ("stream", {"GPU 0 stream 7": 45, "GPU 0 stream 8": 25}),
        ("operator", {"aten::mm": 30, "no operator known": 40}),
        (
            "overlap",
            {"compute": 15, "compute + communication": 15, "communication": 10, "copy": 15},
        ),
    ],
)
def test_kernels_are_added_up(job: Reader, by: str, expected: dict[str, float]) -> None:
    found = {row["name"]: row["total_ns"] / US for row in rows(job, "kernels", by)}

    assert found == expected


@pytest.mark.parametrize("by", [None, "kind"])
def test_operators_have_the_time_of_what_they_launched(tmp_path: Path, by: str | None) -> None:
    gpu = GpuRecording()
    outer = gpu.recording.add_span("aten::linear", 0, 100 * US)
    inner = gpu.recording.add_span("aten::addmm", 10 * US, 50 * US, outer)
    gpu.recording.add_span("aten::relu", 200 * US, 50 * US)
    gpu.work(100, 30, operator=inner)
    gpu.work(140, 5, operator=inner)
    gpu.work(150, 1, operator=outer)

    with gpu.reader(tmp_path) as reader:
        found = {row["name"]: row["gpu_ns"] / US for row in rows(reader, "operators", by)}

    assert found == {"aten::linear": 36, "aten::addmm": 35, "aten::relu": 0}


def test_without_a_gpu_operators_have_no_such_column(tmp_path: Path) -> None:
    gpu = GpuRecording()
    gpu.recording.add_span("aten::linear", 0, 100 * US)

    with gpu.reader(tmp_path) as reader:
        assert "gpu_ns" not in rows(reader, "operators")[0]


def test_gaps_of_a_stream_have_a_reason(tmp_path: Path) -> None:
    gpu = GpuRecording()
    early = gpu.call("cudaLaunchKernel", 0, 1)
    late = gpu.call("cudaLaunchKernel", 70, 1)
    gpu.work(10, 10, launched_by=early)
    gpu.work(25, 10, launched_by=early)  # 5 us: a kernel wait
    gpu.work(30, 3, launched_by=early)  # in the one before
    gpu.work(65, 1, launched_by=early)  # 30 us: something else
    gpu.work(80, 1, launched_by=late)  # launched when there was nothing: 14 us
    gpu.work(82, 1)  # nobody knows

    with gpu.reader(tmp_path) as reader:
        (found,) = rows(reader, "idle")

    assert found["stream"] == "stream 7"
    assert in_us(found) == {
        "span_ns": 73,
        "busy_ns": 23,
        "idle_ns": 50,
        "host_wait_ns": 14,
        "kernel_wait_ns": 6,
        "other_ns": 30,
    }


def test_launch_latency_and_queueing_are_apart(job: Reader) -> None:
    found = {row["name"]: row for row in rows(job, "launches")}

    assert set(found) == {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync"}
    kernel = found["cudaLaunchKernel"]
    assert (kernel["count"], kernel["work"], kernel["short"]) == (2, 2, 0)
    assert in_us(kernel) == {
        "cpu_ns": 9,
        "avg_ns": 4.5,
        "max_ns": 5,
        "gpu_ns": 30,
        "latency_ns": 3.5,  # 5 and 2
        "p99_latency_ns": 5,
        "queueing_ns": 10,  # 0 and 20
        "max_queueing_ns": 20,
    }
    assert in_us(found["cudaMemcpyAsync"])["latency_ns"] == 5


def test_a_graph_is_one_launch_of_much_work(tmp_path: Path) -> None:
    gpu = GpuRecording()
    graph = gpu.call("cudaGraphLaunch", 0, 4)
    for start in (6, 20, 40):
        gpu.work(start, 10, launched_by=graph)

    with gpu.reader(tmp_path) as reader:
        (found,) = rows(reader, "launches")

    assert (found["count"], found["work"], found["gpu_ns"]) == (1, 3, 30 * US)
    assert found["latency_ns"] == 2 * US


def test_the_length_of_a_queue_is_weighted_by_time(job: Reader) -> None:
    found = {row["stream"]: row for row in rows(job, "queue")}

    queue = found["stream 7"]  # 1 for 43 us, 2 for 4 us, none for 28 us
    assert (queue["count"], queue["span_ns"], queue["empty_ns"]) == (3, 75 * US, 28 * US)
    assert queue["mean"] == pytest.approx(51 / 75)
    assert (queue["p99"], queue["longest"], queue["full_ns"]) == (2, 2, 0)


def test_copies_have_rates(job: Reader, tmp_path: Path) -> None:
    found = {row["name"]: row for row in rows(job, "copies")}

    copy = found["Memcpy HtoD"]
    assert (copy["count"], copy["bytes"], copy["total_ns"]) == (1, 20_000, 10 * US)
    assert copy["rate"] == copy["mean_rate"] == copy["max_rate"] == 2.0
    assert found["Memset (Device)"]["rate"] == 1.0


def test_copies_at_the_same_time_share_the_bus(tmp_path: Path) -> None:
    gpu = GpuRecording()
    gpu.work(0, 10, "Memcpy HtoD", "memcpy", stream=7, arguments={"bytes": 10_000})
    gpu.work(5, 10, "Memcpy HtoD", "memcpy", stream=8, arguments={"bytes": 30_000})

    with gpu.reader(tmp_path) as reader:
        (found,) = rows(reader, "copies")

    assert found["rate"] == 2.0
    assert found["max_rate"] == pytest.approx(4.0)
    assert found["mean_rate"] == pytest.approx(40 / 15)


@pytest.fixture
def stepped(tmp_path: Path) -> Reader:
    """Two steps, 0..100 and 100..200, whose kernels end behind them.

    loader   0..40
    aten::mm 40..70, 100..130
    launch   50..60, 110..115
    kernel   55..120 with half a block per multiprocessor, 140..150 with two
    """
    gpu = GpuRecording()
    loader = {"kind": "loader"}
    gpu.recording.add_span("enumerate(DataLoader)#_.__next__", 0, 40 * US, step=0, **loader)
    gpu.recording.add_span("aten::mm", 40 * US, 30 * US, step=0)
    gpu.recording.add_span("aten::mm", 100 * US, 30 * US, step=1)
    calls = [gpu.call("cudaLaunchKernel", 50, 10), gpu.call("cudaLaunchKernel", 110, 5)]
    half = {"blocks per SM": 0.5, "est. achieved occupancy %": 20}
    both = {"blocks per SM": 2, "est. achieved occupancy %": 80}
    kernels = [
        gpu.work(55, 65, launched_by=calls[0], arguments=half),
        gpu.work(140, 10, launched_by=calls[1], arguments=both),
    ]
    for step, kernel in enumerate(kernels):
        gpu.recording.rows["spans"][kernel]["step"] = step
        gpu.recording.add_step(step, step * 100 * US, (0, 0, 0, 0, 100 * US))
    return gpu.reader(tmp_path)


def test_each_moment_of_a_step_has_one_role(stepped: Reader) -> None:
    found = {row["role"]: row["total_ns"] / US for row in rows(stepped, "roles")}

    assert found == {
        "kernel": 75,
        "memcpy": 0,
        "memset": 0,
        "communication": 0,
        "runtime": 5,  # 50..55; the rest of the first call is under the kernel, the second too
        "loader": 40,
        "operators": 20,  # 40..50, 120..130
        "other": 60,
    }
    assert sum(found.values()) == 200


def test_how_well_steps_fill_a_gpu(stepped: Reader) -> None:
    steps = rows(stepped, "gpu")[2]

    assert steps["view"] == "steps"
    assert steps["busy_share"] == pytest.approx(75 / 200)
    assert steps["sm_efficiency"] == pytest.approx((0.5 * 65 + 10) / 200)
    assert steps["occupancy"] == pytest.approx((0.2 * 65 + 0.8 * 10) / 75)


@pytest.mark.parametrize(
    "name",
    ["roles", "collectives", "stragglers", "gpu", "kernels", "idle", "launches", "queue", "copies"],
)
def test_without_a_gpu_a_sentence_says_so(tmp_path: Path, name: str) -> None:
    gpu = GpuRecording()
    with gpu.reader(tmp_path) as reader:
        found = tables.build(reader, name)

        assert found.rows == 0
        assert found.empty.startswith("No ")

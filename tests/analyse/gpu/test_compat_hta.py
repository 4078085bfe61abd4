"""`--compat hta`: the numbers of HolisticTraceAnalysis 0.6.0, by hand and of real traces."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse.gpu import compat_hta
from layerscope.analyse.gpu.hta_events import (
    COMMUNICATION,
    COMPUTATION,
    MEMORY,
    OTHER,
    kernel_type,
)
from layerscope.ingest.open import open_run
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import US, GpuRecording
from tests.corpus import corpus

TABLES = {
    "temporal": "gpu",
    "overlap": "gpu",
    "kernel_type": "kernels",
    "idle": "idle",
    "launch_summary": "launches",
    "queue": "queue",
    "membw": "copies",
}
TRACES = ("simple_add", "event_sync", "event_sync_multi", "ns_resolution", "amd", "triton")
# What `dev.py stress` adds.
OTHER_TRACES = (
    *("df_index_resolver", "sampled_rank-0", "diff_control", "diff_test", "compare_base"),
    *("compare_test", "simple_add_et", "resnet_w0", "resnet_w4", "gpu_metrics"),
)
# Copies of which one begins in the microsecond in which the one before it ends.
BY_CHANCE = {
    ("ns_resolution.membw.csv", "Memcpy DtoD"),
    ("diff_test.membw.csv", "Memcpy DtoD"),
}
NAME_LETTERS = 160
KEYS = ("stream", "idle_category", "kernel_type", "name")


def rows(reader: Reader, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = compat_hta.build(reader, name).data.to_pylist()
    return found


def step(gpu: GpuRecording, number: int, start_us: float, dur_us: float) -> None:
    gpu.recording.add_span(
        f"ProfilerStep#{number}", round(start_us * US), round(dur_us * US), kind="range"
    )


def launched(gpu: GpuRecording, at_us: float, start_us: float, dur_us: float, **more: Any) -> None:
    """A kernel, or what `more` says, with its call of a microsecond and a half."""
    correlation = len(gpu.recording.rows.get("spans", []))
    call = gpu.call("cudaLaunchKernel", at_us, 1.5)
    work = gpu.work(start_us, dur_us, launched_by=call, **more)
    for span in (call, work):
        gpu.recording.rows["spans"][span]["correlation"] = correlation


@pytest.fixture
def two_steps(tmp_path: Path) -> Reader:
    """Two kernels and a copy of the first step, and a kernel of the last one, which HTA drops.

    Rounded by HTA, starts up and ends down: kernel 10.2..20.9 to 11..20, kernel 25..30, copy
    70..80 (launched at 60, after 30), kernel of the last step 110..120.
    """
    gpu = GpuRecording(rank=2)
    step(gpu, 1, 0, 100)
    step(gpu, 2, 100, 100)
    launched(gpu, 1, 10.2, 10.7)
    launched(gpu, 4, 25, 5)
    rate = {"memory bandwidth (GB/s)": 2.5}
    launched(gpu, 60, 70, 10, name="Memcpy HtoD (Pinned -> Device)", kind="memcpy", arguments=rate)
    launched(gpu, 101, 110, 10)
    return gpu.reader(tmp_path)


def test_the_last_step_is_dropped_and_times_are_rounded(two_steps: Reader) -> None:
    (row,) = rows(two_steps, "gpu")

    assert row == {
        "rank": 2, "idle_time(us)": 45, "compute_time(us)": 14, "non_compute_time(us)": 10,
        "kernel_time(us)": 69, "idle_time_pctg": 65.22, "compute_time_pctg": 20.29,
        "non_compute_time_pctg": 14.49, "comp_comm_overlap_pctg": None,
    }  # fmt: skip


def test_gaps_have_the_categories_of_hta(two_steps: Reader) -> None:
    found = {row["idle_category"]: row["idle_time"] for row in rows(two_steps, "idle")}

    assert found == {"host_wait": 40, "kernel_wait": 5, "other": 0}


def test_launches_are_summed_up(two_steps: Reader) -> None:
    """Calls 1..2.5, 4..5.5 and 60..61.5 are a microsecond each, and shorter than their work."""
    (row,) = rows(two_steps, "launches")

    assert (row["n"], row["short_gpu"], row["cpu_sum"], row["gpu_sum"]) == (3, 0, 3, 24)
    assert (row["delay_sum"], row["delay_max"]) == (9 + 20 + 9, 20)


def test_lengths_and_rates_are_those_of_changes(two_steps: Reader) -> None:
    (queue,) = rows(two_steps, "queue")
    (copies,) = rows(two_steps, "copies")

    # Lengths 1 2 1 0 1 0.
    assert (queue["queue_length_count"], queue["queue_length_mean"]) == (6, 5 / 6)
    assert queue["queue_length_max"] == 2
    assert (copies["name"], copies["memory_bw_gbps_count"]) == ("Memcpy HtoD", 1)
    assert copies["memory_bw_gbps_mean"] == 2.5
    assert copies["memory_bw_gbps_std"] is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void gemm<float>(int)", COMPUTATION),
        ("ncclDevKernel_AllReduce", COMMUNICATION),
        ("void ncclKernel_SendRecv", COMMUNICATION),
        ("hipMemcpyKernel", COMMUNICATION),
        ("Memset (Device)", MEMORY),
        ("Stream Sync", OTHER),
    ],
)
def test_kernels_have_their_type_by_name(name: str, kind: int) -> None:
    assert kernel_type(name) == kind


def test_a_table_that_hta_has_not_is_refused(two_steps: Reader) -> None:
    with pytest.raises(UsageError, match="operators has no --compat hta"):
        compat_hta.build(two_steps, "operators")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("trace", TRACES)
def test_numbers_are_those_of_hta(trace: str) -> None:
    folder = corpus("golden/hta")
    with Reader(open_run(corpus(trace_file(folder, trace)))) as reader:
        for golden, name in TABLES.items():
            path = folder / f"{trace}.{golden}.csv"
            if path.exists():
                compare(golden, path, rows(reader, name))


# Lists that HTA cuts, and one of few kernels.
@pytest.mark.parametrize("trace", ["simple_add", "ns_resolution"])
def test_the_list_of_kernels_is_that_of_hta(trace: str) -> None:
    folder = corpus("golden/hta")
    with (folder / f"{trace}.kernels.csv").open() as file:
        golden = list(csv.DictReader(file))
    with Reader(open_run(corpus(trace_file(folder, trace)))) as reader:
        found = compat_hta.build(reader, "kernels", "name").data.to_pylist()

    # HTA cuts names.
    of_name = {(row["kernel_type"], row["name"][:NAME_LETTERS]): row for row in found}
    assert len(found) == len(golden) == len(of_name)
    for row in golden:
        mine = of_name[row["kernel_type"], row["name"]]
        for column in ("sum (us)", "max (us)", "min (us)", "stddev", "mean (us)"):
            assert mine[column.replace(" ", "")] == pytest.approx(float(row[column]))


def test_a_stream_whose_queue_is_full_is_blocked(tmp_path: Path) -> None:
    """A kernel waits for 1,024 others that were launched with it in the first microseconds."""
    gpu = GpuRecording(rank=0)
    for number in range(1024):
        launched(gpu, 1, 100 + number, 1)
    step(gpu, 1, 0, 1)
    with gpu.reader(tmp_path) as reader:
        (row,) = compat_hta.build(reader, "queue", "blocked").data.to_pylist()

    assert row["duration_at_max_queue_length"] == 99
    assert row["relative_duration"] == pytest.approx(99 / 1123)


def test_what_hta_has_not_by_that_is_refused(two_steps: Reader) -> None:
    with pytest.raises(UsageError, match="kernels of HTA cannot be shown by stream"):
        compat_hta.build(two_steps, "kernels", "stream")


@pytest.mark.stress
@pytest.mark.parametrize("trace", OTHER_TRACES)
def test_numbers_of_other_traces_are_those_of_hta(trace: str) -> None:
    test_numbers_are_those_of_hta(trace)


def trace_file(folder: Path, trace: str) -> str:
    with (folder / "INDEX.csv").open() as file:
        return {row["name"]: row["trace"] for row in csv.DictReader(file)}[trace]


def compare(golden: str, path: Path, found: list[dict[str, Any]]) -> None:
    with path.open() as file:
        expected = list(csv.DictReader(file))
    if golden == "kernel_type":
        expected = [row for row in expected if float(row["sum"])]
    of_key = {tuple(str(row.get(key, "")) for key in KEYS): row for row in found}
    assert len(found) == len(of_key)
    assert golden in ("overlap", "temporal") or len(of_key) == len(expected)
    for row in expected:
        mine = of_key[tuple(row.get(key, "") for key in KEYS)]
        if (path.name, row.get("name")) in BY_CHANCE:
            golden = "by chance"
        for column in row.keys() - {"rank", "index", *KEYS}:
            told = None
            if row[column]:
                told = pytest.approx(float(row[column]), **within(golden, column))
            assert mine[column] == told, (path.name, row, column)


def within(golden: str, column: str) -> dict[str, float]:
    """HTA sorts changes by time with a sort that is not stable: of those at the same microsecond
    the order is by chance.
    """
    if golden == "by chance":
        return {"rel": 0.1, "abs": 0.01}
    if golden == "queue" and "count" not in column:
        return {"abs": 1} if column.endswith("%") else {"rel": 0.02}
    return {"rel": 1e-9, "abs": 1e-12}

"""The table `sequences`: by hand, and the most frequent ones of real traces."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import US, GpuRecording
from tests.corpus import corpus


def rows(reader: Reader, under: str | None = None) -> list[dict[str, Any]]:
    options = {} if under is None else {"under": under}
    found: list[dict[str, Any]] = tables.build(
        reader, "sequences", options=options
    ).data.to_pylist()
    return found


def linear(gpu: GpuRecording, at_us: int, names: tuple[str, ...]) -> None:
    """A call of 10 us that runs these, the first by itself and the others by addmm."""
    add = gpu.recording.add_span
    operator = add("aten::linear", at_us * US, 10 * US)
    inner = add("aten::addmm", (at_us + 1) * US, 8 * US, operator)
    for place, name in enumerate(names):
        by = inner if place else operator
        gpu.work(at_us + 20 + 2 * place, 1 + place, name, operator=by)


@pytest.fixture
def calls(tmp_path: Path) -> Reader:
    gpu = GpuRecording()
    linear(gpu, 0, ("memset", "gemm"))
    linear(gpu, 100, ("memset", "gemm"))
    linear(gpu, 200, ("memset", "gemm", "bias"))
    gpu.work(300, 1, "of nobody")
    return gpu.reader(tmp_path)


def test_calls_that_run_the_same_are_one_row(calls: Reader) -> None:
    frequent, other = rows(calls, "aten::linear")

    assert (frequent["operator"], frequent["sequence"]) == ("aten::linear", "memset | gemm")
    assert (frequent["length"], frequent["count"], frequent["share"]) == (2, 2, 2 / 3)
    assert (frequent["gpu_ns"], frequent["avg_gpu_ns"]) == (6 * US, 3 * US)
    assert frequent["cpu_ns"] == 20 * US
    assert (other["sequence"], other["count"]) == ("memset | gemm | bias", 1)


def test_without_an_operator_the_innermost_ones_have_theirs(calls: Reader) -> None:
    found = {(row["operator"], row["sequence"]): row["count"] for row in rows(calls)}

    assert found == {
        ("aten::linear", "memset"): 3, ("aten::addmm", "gemm"): 2, ("aten::addmm", "gemm | bias"): 1
    }  # fmt: skip


def test_the_outermost_of_calls_in_each_other_counts(tmp_path: Path) -> None:
    gpu = GpuRecording()
    outer = gpu.recording.add_span("aten::conv2d", 0, 20 * US)
    inner = gpu.recording.add_span("aten::conv2d", 5 * US, 10 * US, outer)
    gpu.work(30, 1, "first", operator=outer)
    gpu.work(40, 1, "second", operator=inner)

    with gpu.reader(tmp_path) as reader:
        (row,) = rows(reader, "aten::conv2d")
        assert rows(reader, "aten::nothing") == []

    assert (row["sequence"], row["count"], row["cpu_ns"]) == ("first | second", 1, 20 * US)


def test_other_tables_do_not_have_the_option(calls: Reader) -> None:
    with pytest.raises(UsageError, match="kernels has no --under: it is for sequences"):
        tables.build(calls, "kernels", options={"under": "aten::linear"})


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("operator", ["linear", "conv2d", "convolution"])
def test_frequent_sequences_are_those_of_hta(operator: str) -> None:
    """Of those without waits of streams, which are no work here. The tables hold 400 characters of
    a sequence.
    """
    with corpus(f"golden/hta/simple_add.freq_{operator}.csv").open() as file:
        expected = [row for row in csv.DictReader(file) if "Stream Wait" not in row["pattern"]]
    (trace,) = corpus("kineto/hta/critical_path/simple_add").glob("*.json.gz")

    with Reader(open_run(trace)) as reader:
        found = {in_hta(row): row for row in rows(reader, f"aten::{operator}")}

    assert expected
    for row in expected:
        mine = found[row["pattern"]]
        assert mine["count"] == int(row["count"])
        assert mine["gpu_ns"] == float(row["GPU kernel duration (us)"]) * US
        assert mine["cpu_ns"] == float(row["CPU op duration (us)"]) * US


def in_hta(row: dict[str, Any]) -> str:
    sequence: str = row["sequence"].replace(" | ", "|")
    return f"{row['operator']}|{sequence}"[:400]


@pytest.mark.parametrize(
    "trace", ["kineto/hta/ns_resolution_trace", "tb_plugin_resnet50/resnet50_num_workers_4"]
)
def test_traces_of_which_hta_has_none_have_all_their_work(trace: str) -> None:
    """Nanoseconds, and the names of 2021: each call of conv2d, with all the time of its work."""
    (path,) = (one for one in corpus(trace).iterdir() if one.is_file())
    with Reader(open_run(path)) as reader:
        found = rows(reader, "aten::conv2d")
        operators = tables.build(reader, "operators").data.to_pylist()

    (row,) = (row for row in operators if row["name"] == "aten::conv2d")
    assert sum(one["gpu_ns"] for one in found) == row["gpu_ns"] > 0
    assert sum(one["cpu_ns"] for one in found) == row["total_ns"]

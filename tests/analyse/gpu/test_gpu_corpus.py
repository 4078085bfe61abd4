"""Real traces of GPUs: our sums against those of an independent reading of the same file, and
against the tables of other tools.
"""

from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.corpus import corpus

HTA = "kineto/hta"
TRACELENS = "kineto/tracelens"
TRACES = (
    f"{HTA}/critical_path/simple_add",
    f"{HTA}/critical_path/cuda_event_sync_multi_stream",
    f"{HTA}/ns_resolution_trace",
    f"{HTA}/amd_trace",
    f"{HTA}/triton_example",
    f"{HTA}/trace_diff/test",
    f"{TRACELENS}/mi300",
)
WORK = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache for all of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def rows(path: Path, name: str, by: str | None = None) -> list[dict[str, Any]]:
    with Reader(open_run(path)) as reader:
        found: list[dict[str, Any]] = tables.build(reader, name, by).data.to_pylist()
    return found


def only_file(folder: Path) -> Path:
    (file,) = (one for one in folder.iterdir() if one.is_file())
    return file


def events_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = json.loads(text, parse_float=Decimal, strict=False)
    return found["traceEvents"] if isinstance(found, dict) else found


def in_ns(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def covered(intervals: list[tuple[int, int]]) -> int:
    """The time that they cover, by merging them one after the other."""
    total, until = 0, -(2**63)
    for start, end in sorted(intervals):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total


@pytest.mark.parametrize("name", TRACES)
def test_the_time_of_gpus_is_that_of_another_sweep(name: str) -> None:
    path = only_file(corpus(name))
    work: dict[Any, list[tuple[str, int, int]]] = {}
    for event in events_of(path):
        if event.get("ph") != "X" or event.get("cat") not in WORK:
            continue
        start = in_ns(event["ts"])
        kind = "copy" if "mem" in event["cat"].lower() else "compute"
        if kind == "compute" and "nccl" in event["name"]:
            kind = "communication"
        device = event["args"].get("device", 0)
        work.setdefault(device, []).append((kind, start, start + in_ns(event["dur"])))

    found = {row["device"]: row for row in rows(path, "gpu") if row["view"] == "all"}

    assert found.keys() == work.keys()
    for device, of_device in work.items():
        row = found[device]
        by_kind = {
            kind: covered([(start, end) for of, start, end in of_device if of == kind])
            for kind in ("compute", "communication", "copy")
        }
        span = max(end for *_, end in of_device) - min(start for _, start, _ in of_device)
        busy = covered([(start, end) for _, start, end in of_device])
        assert row["count"] == len(of_device)
        assert (row["span_ns"], row["busy_ns"], row["idle_ns"]) == (span, busy, span - busy)
        assert {kind: row[f"{kind}_ns"] for kind in by_kind} == by_kind


# `idle, compute, non-compute, span` in us; of ns_resolution exact to the ns.
KNOWN = {
    f"{HTA}/critical_path/simple_add": ("15975817", "10670", "39088", "16025575"),
    f"{HTA}/triton_example": ("0", "1.760", "0", "1.760"),
    f"{HTA}/ns_resolution_trace": ("7574.738", "468153.602", "4300.839", "480029.179"),
    f"{HTA}/trace_diff/test": ("27296", "548148", "169795", "745239"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_exact_answers(name: str) -> None:
    row = rows(only_file(corpus(name)), "gpu")[0]

    idle, compute, other, span = map(in_ns, KNOWN[name])
    assert (row["idle_ns"], row["compute_ns"], row["span_ns"]) == (idle, compute, span)
    assert row["busy_ns"] - row["compute_ns"] == other


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        (f"{TRACELENS}/h100/{one}.json.gz", f"golden/tracelens/h100/{one}/gpu_timeline.csv")
        for one in (
            "Falconsai_nsfw_image_detection__1016002",
            "Qwen_Qwen1.5-0.5B-Chat__1016005",
            "gaunernst_bert-small-uncased__1016001",
        )
    ],
)
def test_linked_work_is_that_of_another_tool(name: str, golden: str) -> None:
    with corpus(golden).open() as file:
        expected = {row["type"]: float(row["time ms"]) for row in csv.DictReader(file)}

    row = rows(corpus(name), "gpu")[1]

    assert row["view"] == "linked"
    assert row["busy_ns"] / 1e6 == pytest.approx(expected["busy_time"], abs=1e-4)
    assert row["idle_ns"] / 1e6 == pytest.approx(expected["idle_time"], abs=1e-4)
    assert row["span_ns"] / 1e6 == pytest.approx(expected["total_time"], abs=1e-4)


def test_idle_streams_have_the_reasons_of_another_tool() -> None:
    path = only_file(corpus(f"{HTA}/critical_path/cuda_event_sync"))

    (row,) = rows(path, "idle")

    assert (row["host_wait_ns"], row["kernel_wait_ns"], row["other_ns"]) == (212_000, 0, 0)


@pytest.mark.parametrize(
    ("workers", "roles", "shares"),
    [
        (
            0,
            ("98588.6667", "1915.3333", "89", "0", "2907.5", "59261.8333", "13674.1667", "1155.6667"),
            (0.5551408517455255, 0.546790410706937, 0.49128004909286396),
        ),
        (
            4,
            ("99144.6667", "3159.8333", "97.6667", "0", "10564", "1186.1667", "22664.8333", "4250.8333"),
            (0.7027034689359772, 0.6922497791013418, 0.4890989093378699),
        ),
    ],
)  # fmt: skip
def test_steps_are_spent_as_the_plugin_of_tensorboard_says(
    workers: int, roles: tuple[str, ...], shares: tuple[float, ...]
) -> None:
    path = only_file(corpus(f"tb_plugin_resnet50/resnet50_num_workers_{workers}"))

    found = rows(path, "roles")
    steps = rows(path, "gpu")[2]

    assert [row["role"] for row in found][:3] == ["kernel", "memcpy", "memset"]
    for row, avg_us in zip(found, roles, strict=True):
        assert row["avg_ns"] / 1e3 == pytest.approx(float(avg_us), abs=1e-3), row["role"]
    told = (steps["busy_share"], steps["sm_efficiency"], steps["occupancy"])
    assert told == pytest.approx(shares, rel=1e-9)
    loader = next(row for row in found if row["role"] == "loader")
    assert round(100 * loader["share"], 1) == (33.4 if workers == 0 else 0.8)


def test_eight_ranks() -> None:
    """What HTA says of them, and ends of collectives that agree to some microseconds."""
    path = corpus("kineto_ranks/dlrm_8rank")

    overlaps = {row["name"]: row for row in rows(path, "kernels", "overlap")}
    shares = [row["overlap_share"] for row in rows(path, "gpu") if row["view"] == "all"]
    late = rows(path, "stragglers")

    assert overlaps["communication"]["total_ns"] == 46_880_000
    assert overlaps["communication"]["share"] == pytest.approx(0.838, abs=5e-4)
    assert [round(100 * share, 2) for share in shares] == [
        4.5, 2.47, 7.88, 3.31, 0.56, 0.64, 7.56, 9.51,
    ]  # fmt: skip
    assert [row["rank"] for row in late[:2]] == [7, 2]
    assert all(row["reason"] for row in late[:2])
    assert late[0]["last"] == 5

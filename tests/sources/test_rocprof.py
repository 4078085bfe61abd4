"""JSON of rocprofv3, made by hand, and that of the corpus."""

from __future__ import annotations

import copy
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.sources import rocprof
from tests.corpus import corpus


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def record(start: int, end: int, kind: int, operation: int, correlation: int, **more: Any) -> Any:
    about = {"start_timestamp": start, "end_timestamp": end, "kind": kind, "thread_id": 71}
    told = {"operation": operation, "correlation_id": {"internal": correlation, "external": 0}}
    return {**about, **told, **more}


def dispatch(queue: int) -> dict[str, Any]:
    size = {"x": 64, "y": 2, "z": 1}
    grid = {"x": 130, "y": 4, "z": 1}
    place = {"agent_id": {"handle": 5}, "queue_id": {"handle": queue}, "kernel_id": 3}
    return {**place, "group_segment_size": 16, "workgroup_size": size, "grid_size": grid}


def whole() -> dict[str, Any]:
    return {
        "rocprofiler-sdk-tool": [
            {
                "metadata": {"pid": 70, "command": ["python"], "node": {"hostname": "box"}},
                "agents": [
                    {"id": {"handle": 4}, "type": 1, "name": "CPU"},
                    {"id": {"handle": 5}, "type": 2, "logical_node_type_id": 1, "cu_count": 8},
                ],
                "strings": {
                    "buffer_records": [
                        {"kind": "NONE", "operations": []},
                        {"kind": "HIP_RUNTIME_API", "operations": ["no", "hipLaunchKernel"]},
                        {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_HOST_TO_DEVICE"]},
                        {"kind": "MARKER_CORE_API", "operations": ["roctxRangePushA"]},
                    ],
                    "marker_api": [{"key": 9, "value": "step"}],
                },
                "kernel_symbols": [
                    {"kernel_id": 3, "formatted_kernel_name": "gemm", "arch_vgpr_count": 32}
                ],
                "buffer_records": {
                    "marker_api": [record(100, 900, 3, 0, 9)],
                    "hip_api": [record(110, 120, 1, 1, 2)],
                    "memory_copy": [
                        record(
                            130,
                            140,
                            2,
                            0,
                            0,
                            dst_agent_id={"handle": 5},
                            bytes=64,
                            stream_id={"handle": 7},
                        )
                    ],
                    "kernel_dispatch": [
                        record(
                            200, 260, 0, 0, 2, dispatch_info=dispatch(1), stream_id={"handle": 7}
                        )
                    ],
                    "pc_sample_host_trap": [record(1, 2, 0, 0, 0)],
                },
            }
        ]
    }


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with Reader(open_run(path)) as reader:
        found = reader.query(query)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_kernels_copies_calls_and_ranges_of_rocprofv3(tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", whole())
    spans = """SELECT s.name, s.kind, t.name, s.start_ns - (SELECT min(start_ns) FROM spans), s.dur_ns
        FROM spans s JOIN tracks t USING (track) ORDER BY s.start_ns"""
    assert rows(path, spans) == [
        ("step", "task", "thread 71", 0, 800),
        ("hipLaunchKernel", "launch", "thread 71", 10, 10),
        ("Memcpy HtoD", "memcpy", "stream 7", 30, 10),
        ("gemm", "kernel", "stream 7", 100, 60),
    ]
    links = """SELECT l.kind, a.name, b.name FROM links l JOIN spans a ON a.span = l.from_span
        JOIN spans b ON b.span = l.to_span"""
    assert rows(path, links) == [("launch_gpu", "hipLaunchKernel", "gemm")]
    query = "SELECT json FROM spans JOIN args USING (args) WHERE kind = 'kernel'"
    assert json.loads(rows(path, query)[0][0]) == {
        "grid": [3, 2, 1],
        "block": [64, 2, 1],
        "registers per thread": 32,
        "shared memory": 16,
    }
    assert rows(path, "SELECT device FROM tracks WHERE kind = 'stream'") == [(1,)]
    found = rocprof.read(path)
    assert (found.host, found.command) == ("box", ["python"])
    assert [problem.code for problem in found.problems] == ["records_unread"]


def test_without_streams_work_lies_on_queues(tmp_path: Path) -> None:
    content = whole()
    records = content["rocprofiler-sdk-tool"][0]["buffer_records"]
    records["kernel_dispatch"] = [
        record(1, 2, 0, 0, 0, dispatch_info=dispatch(queue), stream_id={"handle": 0})
        for queue in (16, 17)
    ]
    del records["memory_copy"]
    found = rocprof.read(write(tmp_path / "run.json", content))
    names = [track.name for track in found.tracks if track.kind == "stream"]
    assert names == ["queue 16", "queue 17"]


def test_a_file_that_is_cut_opens_to_the_cut_or_is_refused(tmp_path: Path) -> None:
    content = json.dumps(whole()).encode()
    path = tmp_path / "cut.json"
    counts = []
    for size in range(0, len(content), 11):
        path.write_bytes(content[:size])
        try:
            counts.append(len(rocprof.read(path).start_ns))
        except ReadError as error:
            assert "damaged" in str(error)  # noqa: PT017
    assert counts == sorted(counts)
    assert counts[-1] == 4


@pytest.mark.parametrize("value", [None, "text", 1 << 70, -5, [], {"handle": 1}, 1.5])
def test_odd_values_are_counted_or_refused(tmp_path: Path, value: Any) -> None:
    for key in ("start_timestamp", "end_timestamp", "dispatch_info", "thread_id", "kind"):
        content = copy.deepcopy(whole())
        records = content["rocprofiler-sdk-tool"][0]["buffer_records"]
        records["kernel_dispatch"][0][key] = value
        path = write(tmp_path / "run.json", content)
        try:
            assert len(rocprof.read(path).start_ns) in (3, 4)
        except ReadError as error:
            assert "damaged" in str(error)  # noqa: PT017


def test_counts_and_sums_of_the_corpus_are_those_of_its_json() -> None:
    path = corpus("rocprof/908_results.json.gz")
    found = rocprof.read(path)
    tool = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"][0]
    told = tool["buffer_records"]["kernel_dispatch"]
    assert len(found.start_ns) == len(told) == 43_915
    assert int(found.dur_ns.sum()) == sum(
        one["end_timestamp"] - one["start_timestamp"] for one in told
    )
    names = {one["kernel_id"]: str(one["formatted_kernel_name"]) for one in tool["kernel_symbols"]}
    counts = Counter(names[one["dispatch_info"]["kernel_id"]] for one in told)
    assert Counter(found.names[one] for one in found.name.tolist()) == counts

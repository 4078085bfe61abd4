"""Nodes of ONNX Runtime by provider: which fell back, and how threads share their work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from layerscope.sources import onnxruntime

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def node(type_: str, provider: str, start_us: int, run: int, wait: int, tasks: int) -> Any:
    """One call of a node, whose pool has one other thread."""
    stats = {
        "main_thread": {"Run": run, "Wait": wait},
        "sub_threads": {"7001": {"num_run": tasks, "core": 1}},
    }
    return {
        "cat": "Node",
        "ph": "X",
        "pid": 4,
        "tid": 5,
        "name": f"{type_}_0_kernel_time",
        "ts": start_us,
        "dur": 10,
        "args": {
            "op_name": type_,
            "provider": provider,
            "node_index": "1",
            "thread_scheduling_stats": stats,
        },
    }


NODES = [
    node("Conv", CUDA, 0, 0, 0, 0),
    node("Gather", CPU, 20, 6, 2, 3),
    node("Conv", CUDA, 40, 0, 0, 3),
    node("Gather", CPU, 60, 3, 1, 8),
]


def test_nodes_that_fell_back_are_those_on_the_cpu_where_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "profile_2026.json"
    path.write_text(json.dumps(NODES))
    with Reader(open_run(path)) as reader:
        rows = tables.build(reader, "nodes", None).data.to_pylist()
    found = {row["name"]: row for row in rows}
    assert (found["Gather"]["provider"], found["Gather"]["asked"]) == (CPU, CUDA)
    assert (found["Conv"]["provider"], found["Conv"]["asked"]) == (CUDA, None)
    gather = found["Gather"]
    assert (gather["count"], gather["run_ns"], gather["wait_ns"]) == (2, 9_000, 3_000)
    assert gather["imbalance"] == 0.25


def test_what_was_asked_for_and_done_by_the_pool_is_kept_once_for_all_calls(tmp_path: Path) -> None:
    path = tmp_path / "onnxruntime-4-1_2026.json"
    path.write_text(json.dumps(NODES))
    asked = {"format": "onnxruntime", "providers": ["TensorrtExecutionProvider", CUDA]}
    (tmp_path / "onnxruntime-4-1.profile").write_text(json.dumps(asked))
    content = onnxruntime.recorded(path)
    told = [json.loads(text) for text in content.args_texts]
    by_provider = {one["provider"]: one for one in told}
    assert len(told) == 2
    assert {one["asked"] for one in told} == {"TensorrtExecutionProvider"}
    assert by_provider[CPU]["pool"] == {"run_us": 9, "wait_us": 3, "tasks": [8]}
    assert by_provider[CUDA]["pool"] == {"run_us": 0, "wait_us": 0, "tasks": [0]}

"""Events of memory in traces of torch.profiler that are known to the byte, damaged ones, and those of
the corpus against their JSON.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.model.layers import PHASES
from layerscope.recording.reader import Reader
from layerscope.sources import kineto
from layerscope.sources.imported import Imported


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def span(name: str, start_us: float, dur_us: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 9,
        "tid": tid,
        "ts": start_us,
        "dur": dur_us,
        "args": args,
    }


def memory(at_us: float, address: Any, size: Any, tid: int = 1, **more: Any) -> dict[str, Any]:
    """An event as PyTorch writes it; `more`: other arguments, with _ in the place of blanks."""
    args = {
        "Total Reserved": 0,
        "Total Allocated": 0,
        "Bytes": size,
        "Addr": address,
        "Device Id": -1,
        "Device Type": 0,
        "Ev Idx": 1,
        **{name.replace("_", " "): value for name, value in more.items()},
    }
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 9,
        "tid": tid,
        "ts": at_us,
        "args": args,
    }


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": events, "baseTimeNanoseconds": 0})
    )
    return path


def operators(found: Imported) -> list[tuple[str, str]]:
    """Operator and phase of each event."""
    names = [*found.names, ""]
    codes = found.memory.column("operator").tolist()
    phases = found.memory.column("phase").tolist()
    return [(names[code], PHASES[phase]) for code, phase in zip(codes, phases, strict=True)]


def test_an_event_has_the_innermost_operator_that_does_more_than_allocate(tmp_path: Path) -> None:
    events = [
        span("aten::linear", 0, 100, **{"Sequence number": 3}),
        span("aten::addmm", 10, 50),
        span("aten::empty", 20, 5),
        memory(22, 1, 8),
        memory(40, 2, 8),
        memory(80, 3, 8),
        memory(150, 4, 8),
        memory(22, 5, 8, tid=2),
        span("aten::empty", 200, 10),
        span("aten::empty_strided", 202, 5),
        memory(203, 6, 8),
        span("autograd::engine::evaluate_function: MmBackward0", 300, 50),
        span("MmBackward0", 301, 40),
        span("aten::mm", 302, 30),
        memory(303, 7, 8),
        span("Optimizer.step#SGD.step", 400, 50) | {"cat": "user_annotation"},
        span("aten::add_", 410, 30),
        memory(420, 8, 8),
    ]
    found = kineto.read(write(tmp_path / "trace.json", events))
    by_block = dict(zip(found.memory.column("block").tolist(), operators(found), strict=True))
    assert by_block == {
        1: ("aten::addmm", "forward"),
        2: ("aten::addmm", "forward"),
        3: ("aten::linear", "forward"),
        4: ("", "other"),
        5: ("", "other"),
        6: ("aten::empty", "other"),
        7: ("aten::mm", "backward"),
        8: ("aten::add_", "optimizer"),
    }


def test_the_phase_is_that_of_the_innermost_scope(tmp_path: Path) -> None:
    """Of a step with a closure, and of an optimizer that runs inside the backward pass."""
    user = {"cat": "user_annotation"}
    engine = "autograd::engine::evaluate_function: "
    events = [
        span("Optimizer.step#LBFGS.step", 0, 100) | user,
        memory(5, 1, 8),
        span("Optimizer.zero_grad#LBFGS.zero_grad", 6, 3) | user,
        span("aten::zero_", 7, 1, **{"Sequence number": 2}),
        memory(7.5, 7, 8),
        span("aten::mm", 12, 10, **{"Sequence number": 3}),
        memory(13, 2, 8),
        span(f"{engine}MmBackward0", 40, 20),
        memory(50, 3, 8),
        memory(70, 4, 8),
        span(f"{engine}AccumulateGrad", 200, 50),
        span("Optimizer.step#SGD.step", 210, 20) | user,
        span("aten::add_", 212, 5),
        memory(213, 5, 8),
        memory(240, 6, 8),
    ]
    found = kineto.read(write(tmp_path / "trace.json", events))
    blocks = found.memory.column("block").tolist()
    phases = {block: phase for block, (_, phase) in zip(blocks, operators(found), strict=True)}
    assert phases == {
        1: "optimizer",
        7: "optimizer",
        2: "forward",
        3: "backward",
        4: "optimizer",
        5: "optimizer",
        6: "backward",
    }


def test_blocks_of_devices_with_the_same_address_are_told_apart(tmp_path: Path) -> None:
    devices = [(0, -1), (1, 0), (1, 3), (6, 1), (77, 0)]
    events = [span("aten::ones", 0, 1)]
    for number, (kind, device) in enumerate(devices):
        more = {"Device_Type": kind, "Device_Id": device, "Total_Allocated": 100 + number}
        events.append(memory(10 + number, 4096, 100 + number, **more))
        if kind == 1:
            more |= {"Total_Reserved": 1000, "Total_Allocated": 0}
            events.append(memory(30 + number, 4096, -100 - number, **more))
    path = write(tmp_path / "trace.json", events)
    with Reader(open_run(path)) as reader:
        rows = reader.query("SELECT device, bytes, dur_ns FROM allocations ORDER BY bytes")
        found = [tuple(row.values()) for row in rows.to_pylist()]
        names = reader.query("SELECT DISTINCT name FROM counters WHERE name LIKE 'reserved%'")
        reserved = {row["name"] for row in names.to_pylist()}
    assert found == [
        ("cpu", 100, None),
        ("cuda:0", 101, 20_000),
        ("cuda:3", 102, 20_000),
        ("cuda:1", 103, None),
        ("device type 77:0", 104, None),
    ]
    assert reserved == {"reserved_bytes of cuda:0", "reserved_bytes of cuda:3"}


def test_what_was_allocated_before_is_said(tmp_path: Path) -> None:
    of_gpu = {"Device_Type": 1, "Device_Id": 0}
    events = [
        span("aten::ones", 0, 1),
        memory(5, 2, 16, Total_Allocated=16),
        memory(6, 3, 1000, Total_Allocated=5_001_000, **of_gpu),
        memory(7, 3, -1000, Total_Allocated=5_000_000, **of_gpu),
    ]
    found = kineto.read(write(tmp_path / "trace.json", events))
    (problem,) = found.problems
    assert problem.code == "profile_begins_late"
    assert problem.what.startswith("5,000,000 bytes of cuda:0 were allocated before")


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "0x7f", "size": 8},
        {"address": 1, "size": None},
        {"address": 1, "size": 8.5},
        {"address": 1 << 63, "size": 8},
        {"address": 1, "size": 0},
        {"address": -1, "size": 8},
        {"address": 1, "size": 8, "Device_Type": "CUDA"},
        {"address": 1, "size": 8, "Device_Id": 1 << 40},
        {"address": 1, "size": 8, "Total_Allocated": True},
    ],
)
def test_events_with_impossible_numbers_are_counted(wrong: dict[str, Any], tmp_path: Path) -> None:
    events = [span("aten::ones", 0, 1), memory(5, 2, 16), memory(6, **wrong)]
    found = kineto.read(write(tmp_path / "trace.json", events))
    assert found.memory.column("bytes").tolist() == [16]
    problem, *_ = found.problems
    assert (problem.code, problem.what[:8]) == ("events_rejected", "1 events")


def test_arguments_of_other_events_may_have_the_same_names(tmp_path: Path) -> None:
    odd = {"Addr": "here", "Bytes": [1], "Device Type": {"a": 1}, "Device Id": None}
    found = kineto.read(write(tmp_path / "trace.json", [span("aten::ones", 0, 1, **odd)]))
    assert len(found.start_ns) == 1
    assert len(found.memory) == 0


def test_a_trace_of_memory_alone_is_read(tmp_path: Path) -> None:
    found = kineto.read(write(tmp_path / "trace.json", [memory(5, 2, 16), memory(7, 2, -16)]))
    assert found.memory.at_ns.tolist() == [0, 2_000]
    assert found.realtime_ns == 5_000


VALUES = (
    st.none()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.booleans()
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"address": VALUES, "size": VALUES},
            optional={"Device_Type": VALUES, "Device_Id": VALUES, "Total_Reserved": VALUES},
        ),
        max_size=5,
    )
)
def test_any_arguments_are_no_fault(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    events = [memory(number, **row) for number, row in enumerate(rows)]
    kineto.read(write(tmp_path / "trace.json", [span("aten::ones", 0, 100), *events]))


@pytest.mark.parametrize(
    "name",
    [
        "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
        "tracelens/perf_model/normalization/normalization_layer_test.json.gz",
    ],
)
def test_blocks_of_the_corpus_are_those_of_its_events(name: str) -> None:
    path = Path(os.environ.get("LAYERSCOPE_CORPUS", "")) / "kineto" / name
    if "LAYERSCOPE_CORPUS" not in os.environ or not path.exists():
        pytest.skip("LAYERSCOPE_CORPUS names no folder with these traces")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    arguments = [event["args"] for event in trace["traceEvents"] if event["name"] == "[memory]"]
    expected = Counter(one["Bytes"] for one in arguments if one["Bytes"] > 0)
    with Reader(open_run(path)) as reader:
        rows = reader.query("SELECT bytes, dur_ns, is_lost, operator FROM allocations").to_pylist()
    assert Counter(row["bytes"] for row in rows) == expected
    ended = sum(row["dur_ns"] is not None for row in rows)
    assert ended == sum(one["Bytes"] < 0 for one in arguments)
    assert not any(row["is_lost"] for row in rows)
    assert any(row["operator"] for row in rows)


def test_the_table_has_what_each_device_allocated_and_reserved(tmp_path: Path) -> None:
    """The most of each, and what was left at the end; the CPU reserves nothing."""
    cuda = {"Device_Type": 1, "Device_Id": 0}
    events = [
        span("aten::ones", 0, 1),
        memory(10, 4096, 500, **cuda, Total_Allocated=500, Total_Reserved=2000),
        memory(20, 8192, 700, **cuda, Total_Allocated=1200, Total_Reserved=4000),
        memory(30, 8192, -700, **cuda, Total_Allocated=500, Total_Reserved=3000),
        memory(40, 4096, 64, Device_Type=0, Device_Id=-1, Total_Allocated=64),
    ]
    path = write(tmp_path / "trace.json", events)
    with Reader(open_run(path)) as reader:
        found = tables.build(reader, "memory", "device").data.to_pylist()

    rows = [tuple(row.values()) for row in found]
    assert rows == [(0, "cpu", 64, None, 64, None), (0, "cuda:0", 1200, 4000, 500, 3000)]


def test_blocks_that_an_old_trace_does_not_tell_are_said(tmp_path: Path) -> None:
    event = memory(5, 2, 16)
    event["args"] = {"Device Type": 0, "Device Id": -1, "Bytes": 16}
    found = kineto.read(write(tmp_path / "trace.json", [span("aten::ones", 0, 1), event]))
    assert not len(found.memory)
    (problem,) = [one for one in found.problems if one.layer == "memory"]
    assert (problem.code, problem.what[:3]) == ("blocks_untold", "1 a")
    assert not [one for one in found.problems if one.code == "events_rejected"]

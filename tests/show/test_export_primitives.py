"""Primitives in exported files: below their operators, with what is known of them, shares on their
threads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import Recording
from tests.show.exported import ReadSpan, depths
from tests.show.test_export_tables import parquet
from tests.show.test_export_traces import BOTH, export

CALL = "cpu,convolution,jit:avx512_core,forward_training,src:f32:a:blocked:abcd::f0,,alg:convolution_direct,mb8_ic3oc32"
TOLD = {"implementation": "jit:avx512_core", "problem": "mb8_ic3oc32", "flop": 1200}


def convolution() -> Recording:
    """aten::convolution with a creation and an execution below it, half of which another thread
    works; two steps.
    """
    recording = Recording()
    worker = recording.add_thread(recording.process, 101, "pool")
    recording.rows["args"] = [{"args": 0, "json": json.dumps({"library": "oneDNN", "call": CALL})}]
    links = recording.rows["links"] = []
    for step in range(2):
        start_ns = 1000 * step
        operator = recording.add_span("aten::convolution", start_ns, 100, step=step)
        recording.add_primitive("convolution", start_ns, 10, operator, kind="create", depth=1)
        primitive = recording.add_primitive(
            "convolution", start_ns + 20, 60, operator, TOLD, args=0
        )
        more = {"kind": "share", "track": worker, "args": 0, "step": step}
        share = recording.add_primitive(
            "convolution", start_ns + 30, 30, None, {**TOLD, "share_of": primitive}, **more
        )
        links += [{"from_span": operator, "to_span": primitive, "kind": "operator_primitive"}]
        links += [{"from_span": primitive, "to_span": share, "kind": "primitive_share"}]
        recording.add_step(step, start_ns, (0, 1000, 0, 0, 0))
    return recording


def arguments(span: ReadSpan) -> dict[str, Any]:
    told = span.args["args"]
    found: dict[str, Any] = json.loads(told) if isinstance(told, str) else told
    return found


@BOTH
@pytest.mark.parametrize("steps", [None, range(1, 2)])
def test_a_primitive_is_a_slice_below_its_operator(
    tmp_path: Path, suffix: str, steps: range | None
) -> None:
    trace = export(convolution().write(tmp_path / "r.layerscope"), suffix, steps)

    placed = {
        (span.category, depth, trace.threads[span.pid, span.tid]) for span, depth in depths(trace)
    }
    assert placed == {
        ("steps", 0, "steps"),
        ("operators,function", 0, "python"),
        ("primitives,create", 1, "python"),
        ("primitives,execute", 1, "python"),
        ("primitives,share", 0, "pool"),
    }
    flows = {(trace.spans[a].category, trace.spans[b].category) for a, b in trace.flows}
    assert flows == {("primitives,execute", "primitives,share")}
    assert len(trace.flows) == (2 if steps is None else 1)


@BOTH
def test_a_slice_says_what_is_known_of_its_primitive(tmp_path: Path, suffix: str) -> None:
    trace = export(convolution().write(tmp_path / "r.layerscope"), suffix)

    (told, *_) = [arguments(span) for span in trace.spans if span.category == "primitives,execute"]
    assert told == {"library": "oneDNN", "call": CALL, **TOLD}


def test_a_table_has_a_row_for_each_primitive(tmp_path: Path) -> None:
    rows = parquet(convolution().write(tmp_path / "r.layerscope"))

    found = [(row["kind"], row["tid"], row["args"]) for row in rows if row["layer"] == "primitives"]
    text = json.dumps({"library": "oneDNN", "call": CALL})
    assert sorted(found, key=str) == sorted(
        2 * [("create", 100, None), ("execute", 100, text), ("share", 101, text)], key=str
    )

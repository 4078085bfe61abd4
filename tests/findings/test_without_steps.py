"""A program without steps: the run is what is priced."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.analyse import findings
from layerscope.recording.reader import Reader
from tests.recordings import Recording

US = 1_000


def loop_of(operators: int) -> Recording:
    """Operators of 8 µs, 4 µs apart, and one that takes longer."""
    recording = Recording()
    for number in range(operators):
        recording.add_span("aten::mul", number * 12 * US, 8 * US)
    recording.add_span("aten::mm", operators * 12 * US, 10_000 * US)
    row = {"total": 0, "process": 0, "layer": "operators", "kind": "function", "name": "aten::mul"}
    sums = dict.fromkeys(("total_ns", "self_ns", "min_ns", "max_ns"), 8 * US)
    recording.rows["totals"] = [{**row, "step_class": "outside", "count": operators, **sums}]
    return recording


def found(recording: Recording, folder: Path) -> list[findings.Finding]:
    with Reader(recording.write(folder / "made.layerscope")) as reader:
        return list(findings.find(reader, ["small_operators"]).found)


def test_many_short_operators_cost_their_time_and_that_between_them(tmp_path: Path) -> None:
    (one,) = found(loop_of(10_000), tmp_path)

    assert one.title == "10,000 short operators of a run repeat each other"
    assert one.price.per == "run"
    # What is between two of them is Python's loop. The tenth is for what goes away with them.
    measured_ns = 10_000 * 12 * US - 4 * US
    assert one.price.low_ns == pytest.approx(measured_ns)
    assert one.price.value_ns > measured_ns
    assert one.where.operator == "aten::mul"


def test_fewer_are_no_finding(tmp_path: Path) -> None:
    assert found(loop_of(9_999), tmp_path) == []

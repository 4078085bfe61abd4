"""This recording against an earlier one, as `layerscope diff` compares them, with --compare."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from layerscope.analyse import diff
from layerscope.analyse.step_times import MeasuredSteps
from layerscope.recording.reader import Reader

TITLE = "Compare"
ORDER = 70


def compared(reader: Reader, other: Reader) -> dict[str, Any]:
    """What `diff` says of `other`, which came before, and `reader`, and the steps of both."""
    labels = (other.run.name, reader.run.name)
    found = diff.build(other, reader, labels, [diff.OVERVIEW])
    result = found.result(diff.OVERVIEW, reader.connection())
    data = result.data
    return {
        "a": _side(other),
        "b": _side(reader),
        "columns": [asdict(column) for column in result.columns],
        "values": [data.column(place).to_pylist() for place in range(data.num_columns)],
        "notes": list(result.notes),
    }


def _side(reader: Reader) -> dict[str, Any]:
    steps = MeasuredSteps(reader)
    return {
        "name": reader.run.name,
        "command": reader.run.info.command,
        "durations_ns": steps.columns["dur_ns"][steps.measured].tolist(),
    }

"""Tables as JSON: one object of stable shape, integer nanoseconds, rows as lists.

{"schema": 1, "command": "table", "run": "mnist_cnn.layerscope", "table": "operators",
 "columns": [{"name": "name", "type": "string", "unit": ""}, ...], "rows": [[...], ...],
 "problems": [{"layer": ..., "code": ..., "what": ..., "remedy": ..., "lost": ...}, ...],
 "notes": ["..."], "totals": {"self_ns": 1204}}
"""

from __future__ import annotations

from dataclasses import asdict
from typing import BinaryIO

import msgspec

from layerscope.analyse.result import Result
from layerscope.model.schema import SCHEMA_VERSION


def write(result: Result, stream: BinaryIO, command: str, run: str) -> None:
    """Write `result`, that `command` made of the recording `run`, and a newline."""
    stream.write(encoded(result, command, run) + b"\n")


def encoded(result: Result, command: str, run: str) -> bytes:
    """`result` as the bytes of one JSON object."""
    columns = [result.data[column.name].to_pylist() for column in result.columns]
    return msgspec.json.encode(
        {
            "schema": SCHEMA_VERSION,
            "command": command,
            "run": run,
            "table": result.name,
            "columns": [{"name": c.name, "type": c.type, "unit": c.unit} for c in result.columns],
            "rows": list(zip(*columns, strict=True)),
            "problems": [asdict(problem) for problem in result.problems],
            "notes": result.sentences,
            "totals": dict(result.totals),
        }
    )

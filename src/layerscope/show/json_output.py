"""Tables as JSON: one object of stable shape, integer nanoseconds, rows as lists.

{"schema": 1, "command": "table", "run": "mnist_cnn.layerscope", "table": "operators",
 "columns": [{"name": "name", "type": "string", "unit": ""}, ...], "rows": [[...], ...],
 "problems": [{"layer": ..., "code": ..., "what": ..., "remedy": ..., "lost": ...}, ...],
 "notes": ["..."], "totals": {"self_ns": 1204}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from msgspec.structs import asdict

from layerscope.analyse.result import Result, ResultColumn
from layerscope.model.events import Problem
from layerscope.model.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa


def write(result: Result, stream: BinaryIO, command: str, run: str) -> None:
    """Write `result`, that `command` made of the recording `run`, and a newline."""
    stream.write(encoded(result, command, run) + b"\n")


def write_pieces(
    columns: Sequence[ResultColumn],
    pieces: Iterable[pa.Table],
    stream: BinaryIO,
    command: str,
    run: str,
    problems: Iterable[Problem],
) -> None:
    """Write an answer of any length, its `pieces` as they come: the same object, without notes and
    totals.
    """
    head = {
        "schema": SCHEMA_VERSION,
        "command": command,
        "run": run,
        "table": command,
        "columns": _about(columns),
    }
    stream.write(msgspec.json.encode(head)[:-1] + b',"rows":[')
    separator = b""
    for piece in pieces:
        if piece.num_rows:
            rows = zip(
                *(piece.column(place).to_pylist() for place in range(piece.num_columns)),
                strict=True,
            )
            stream.write(separator + msgspec.json.encode(list(rows))[1:-1])
            separator = b","
    tail = {"problems": [asdict(problem) for problem in problems], "notes": [], "totals": {}}
    stream.write(b"]," + msgspec.json.encode(tail)[1:] + b"\n")


def write_rows(
    columns: Sequence[ResultColumn],
    rows: Iterable[Sequence[Any]],
    stream: BinaryIO,
    command: str,
    table: str,
    more: Mapping[str, Any],
) -> None:
    """Write rows that are no recording's: the same object, with what is `more` beside them."""
    document = {
        "schema": SCHEMA_VERSION,
        "command": command,
        "run": "",
        "table": table,
        "columns": _about(columns),
        "rows": list(rows),
        "problems": [],
        "notes": [],
        "totals": {},
        **more,
    }
    stream.write(msgspec.json.encode(document) + b"\n")


def _about(columns: Sequence[ResultColumn]) -> list[dict[str, str]]:
    about = []
    for column in columns:
        about.append({"name": column.name, "type": column.type, "unit": column.unit})
    return about


def encoded(result: Result, command: str, run: str) -> bytes:
    """`result` as the bytes of one JSON object."""
    columns = [result.data[column.name].to_pylist() for column in result.columns]
    return msgspec.json.encode(
        {
            "schema": SCHEMA_VERSION,
            "command": command,
            "run": run,
            "table": result.name,
            "columns": _about(result.columns),
            "rows": list(zip(*columns, strict=True)),
            "problems": [asdict(problem) for problem in result.problems],
            "notes": result.sentences,
            "totals": dict(result.totals),
        }
    )

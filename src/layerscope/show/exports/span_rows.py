"""The spans as one flat table with readable names, for the formats that are tables: `COLUMNS`, and
`batches` of rows.

Rows stand as they do in the recording: by thread and start, block of spans by block of spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from layerscope.model.errors import ReadError, UsageError
from layerscope.show.exports.wall_clock import realtime_of

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# name: (expression, type, meaning)
COLUMNS = {
    "span": ("span", pa.int64(), "key of the span"),
    "parent": ("spans.parent", pa.int64(), "the span it lies in"),
    "process": ("process", pa.int32(), "key of its process"),
    "pid": ("pid", pa.int32(), "process id"),
    "rank": ("rank", pa.int32(), "rank in a distributed job"),
    "host": ("host", pa.string(), "host name"),
    "track": ("spans.track", pa.int32(), "key of its thread: ids are reused, keys are not"),
    "tid": ("tid", pa.int32(), "thread id"),
    "thread": ("tracks.name", pa.string(), "name of its thread"),
    "depth": ("depth", pa.int32(), "number of spans that were open on the thread when it started"),
    "start_ns": (
        "spans.start_ns",
        pa.int64(),
        "start on the clock of the recording (CLOCK_MONOTONIC)",
    ),
    "start_realtime_ns": (
        "spans.start_ns + {shift}",
        pa.int64(),
        "start on CLOCK_REALTIME, since 1970",
    ),
    "dur_ns": ("dur_ns", pa.int64(), "duration"),
    "self_ns": ("self_ns", pa.int64(), "duration without the children of the same layer"),
    "layer": ("layer", pa.string(), "layer of the stack"),
    "kind": ("spans.kind", pa.string(), "kind of span"),
    "name": ("spans.name", pa.string(), "name"),
    "module": ("modules.path", pa.string(), "path of the innermost module it ran in"),
    "line": ("spans.line", pa.string(), "file:line that opened the range"),
    "step": ("step", pa.int32(), "the step it started in"),
    "phase": ("phase", pa.string(), "phase of the step"),
    "correlation": ("correlation", pa.int64(), "key shared with the work it launched"),
    "sequence": ("sequence", pa.int32(), "autograd sequence number"),
    "args": ("args.json", pa.string(), "arguments, a JSON object"),
    "weight": ("weight", pa.int32(), "how many spans it stands for"),
    "unfinished": (
        "unfinished",
        pa.bool_(),
        "it was still open when the recording of its process ended",
    ),
}
SCHEMA = pa.schema([(name, kind) for name, (_, kind, _) in COLUMNS.items()])

_ROWS = 1 << 17
_QUERY = """
    SELECT {columns} FROM spans LEFT JOIN tracks USING (track) LEFT JOIN processes USING (process)
    LEFT JOIN modules ON modules.module = spans.module LEFT JOIN args ON args.args = spans.args
    WHERE {where}"""


def batches(reader: Reader, steps: range | None) -> Iterator[pa.RecordBatch]:
    """The rows, a batch at a time: memory does not grow with their number. UsageError when no span
    is in `steps`.
    """
    import duckdb

    shift, _ = realtime_of(reader, 0)
    columns = ", ".join(f"{expression} AS {name}" for name, (expression, _, _) in COLUMNS.items())
    where = f"step >= {steps.start} AND step < {steps.stop}" if steps is not None else "true"
    question = _QUERY.format(columns=columns, where=where).format(
        shift="NULL" if shift is None else shift
    )
    rows = 0
    try:
        for batch in reader.connection().sql(question).to_arrow_reader(_ROWS):
            rows += batch.num_rows
            yield pa.Table.from_batches([batch]).cast(SCHEMA).combine_chunks().to_batches()[0]
    except duckdb.Error as error:
        raise ReadError(
            f"{reader.run.path} cannot be read: {str(error).splitlines()[0]}"
        ) from error
    if steps is not None and not rows:
        raise UsageError(f"--steps {steps.start}:{steps.stop} holds no span of the recording")


def notes(reader: Reader) -> tuple[str, ...]:
    """What must be said about the times."""
    return realtime_of(reader, 0)[1]

"""One line of comma-separated values for each span, times in whole nanoseconds."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from pyarrow import csv

from layerscope.show.exports import Exported
from layerscope.show.exports.span_rows import SCHEMA, batches, notes

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

SUFFIXES = (".csv", ".csv.gz")
OPEN = "read it with any tool that reads CSV; fields without a value are empty"


def write(reader: Reader, stream: IO[bytes], steps: range | None = None) -> Exported:
    """Write a line of column names and the spans."""
    rows = 0
    with csv.CSVWriter(stream, SCHEMA) as writer:
        for batch in batches(reader, steps):
            writer.write_batch(batch)
            rows += batch.num_rows
    return Exported(rows, notes=notes(reader))

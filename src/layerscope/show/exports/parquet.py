"""One Parquet file of the spans with readable names: for pandas, polars, DuckDB and Spark."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from layerscope.show.exports import Exported
from layerscope.show.exports.span_rows import SCHEMA, batches, notes

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

SUFFIXES = (".parquet",)
OPEN = "read it with any tool that reads Parquet"


def write(reader: Reader, stream: IO[bytes], steps: range | None = None) -> Exported:
    """Write the spans as one table."""
    integers = {}
    texts = []
    for field in SCHEMA:
        if pa.types.is_integer(field.type):
            integers[field.name] = "DELTA_BINARY_PACKED"
        elif pa.types.is_string(field.type):
            texts.append(field.name)
    rows = 0
    with pq.ParquetWriter(
        stream, SCHEMA, compression="zstd", use_dictionary=texts, column_encoding=integers
    ) as writer:
        for batch in batches(reader, steps):
            writer.write_batch(batch)
            rows += batch.num_rows
    return Exported(rows, notes=notes(reader))

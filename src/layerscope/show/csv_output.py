"""Tables as CSV: a line of column names, integer nanoseconds, an empty field where there is no
value.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from layerscope.analyse.result import Result, ResultColumn

if TYPE_CHECKING:
    import pyarrow as pa


def write(result: Result, stream: TextIO) -> None:
    """Write the rows of `result`, and nothing but its rows."""
    write_pieces(result.columns, [result.data], stream)


def write_pieces(
    columns: Sequence[ResultColumn], pieces: Iterable[pa.Table], stream: TextIO
) -> None:
    """Write an answer of any length, its `pieces` as they come."""
    writer = csv.writer(_UnixLines(stream))
    writer.writerow(column.name for column in columns)
    for piece in pieces:
        for batch in piece.to_batches(max_chunksize=1 << 16):
            writer.writerows(
                zip(
                    *(batch.column(index).to_pylist() for index in range(batch.num_columns)),
                    strict=True,
                )
            )


class _UnixLines:
    """Ends lines with a newline alone.

    The writer itself must believe in CR and LF: before Python 3.13 it quotes a carriage return in a
    name only if its own lines end in one.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        """Write one line; the writer hands over whole ones."""
        content = line.removesuffix("\r\n")
        return self._stream.write(content + "\n")

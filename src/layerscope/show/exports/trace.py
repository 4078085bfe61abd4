"""A Chrome trace of a window of a recording: what `layerscope export` writes, of what started in
the window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.model.schema import TABLES
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run

# The column of the time in every table that has one and that may be long.
_MOMENTS = {
    "spans": "start_ns",
    "steps": "start_ns",
    "gaps": "start_ns",
    "counters": "at_ns",
    "marks": "at_ns",
}


class Windowed(Reader):
    """A recording of which only [since_ns, until_ns) is seen."""

    def __init__(self, run: Run, since_ns: int, until_ns: int | None) -> None:
        super().__init__(run)
        self.since_ns = since_ns
        self.until_ns = Reader.until_ns if until_ns is None else until_ns

    def arrays(self, table: str, columns: list[str]) -> dict[str, np.ndarray]:
        """As `Reader.arrays`."""
        return self._within(
            table, super().arrays(table, self._with_moment(table, columns)), columns
        )

    def pieces(
        self,
        table: str,
        columns: list[str],
        newest_first: bool = False,
        files: Iterable[Path] | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """As `Reader.pieces`."""
        for piece in super().pieces(table, self._with_moment(table, columns), newest_first, files):
            kept = self._within(table, piece, columns)
            if len(kept[columns[0]]):
                yield kept

    def _with_views(self, tables: Collection[str]) -> Any:
        """All of them at once."""
        fresh = self._connection is None
        connection = super()._with_views(TABLES.keys())
        for table, moment in _MOMENTS.items() if fresh else ():
            connection.execute(f"ALTER VIEW {table} RENAME TO all_{table}")
            connection.execute(
                f"CREATE VIEW {table} AS SELECT * FROM all_{table} "
                f"WHERE {moment} >= {self.since_ns} AND {moment} < {self.until_ns}"
            )
        return connection

    def _with_moment(self, table: str, columns: list[str]) -> list[str]:
        moment = _MOMENTS.get(table)
        if moment is None or moment in columns:
            return columns
        return [*columns, moment]

    def _within(
        self, table: str, found: dict[str, np.ndarray], columns: list[str]
    ) -> dict[str, np.ndarray]:
        moment = _MOMENTS.get(table)
        if moment is None:
            return found
        at_ns = found[moment]
        rows = np.flatnonzero((at_ns >= self.since_ns) & (at_ns < self.until_ns))
        wanted = {
            name: values for name, values in found.items() if name.removesuffix(".names") in columns
        }
        return {
            name: values if name.endswith(".names") else values[rows]
            for name, values in wanted.items()
        }


def write(run: Run, file: Path, since_ns: int, until_ns: int | None) -> None:
    """Write the trace of `run` to `file`."""
    from layerscope.show.exports import chrome_json

    with Windowed(run, since_ns, until_ns) as reader, file.open("wb") as stream:
        chrome_json.write(reader, stream)

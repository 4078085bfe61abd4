"""The tables of `layerscope table` as blocks: the same rows, by column."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from msgspec.structs import asdict

from layerscope.analyse import tables
from layerscope.analyse.result import Result
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import Block, json_block

# What the page has of each table beside the table itself. Others are a command away.
BY = {
    "operators": ("kind", "module", "thread", "primitive"),
    "modules": ("class",),
    "waits": ("thread",),
    "counters": ("process",),
    "memory": ("line", "step"),
    "peak": ("category",),
}
# Instead of the number of rows, as long as nobody has counted them.
NOT_KNOWN = -1
# The spans themselves are in the timeline.
_LEFT_OUT = ("spans",)


def names_in_report() -> list[str]:
    """The tables that the page has."""
    every = tables.names()
    return [name for name in every if name not in _LEFT_OUT]


class ReportTable:
    """A table of the report: what the page says of it, and its rows, made when they are asked for.

    A table that divides another one by something may have nothing to divide; then it is empty.
    """

    def __init__(self, reader: Reader, name: str, by: str | None) -> None:
        self._reader = reader
        self.name, self.by = name, by
        self.block_name = f"table {name} {by}" if by else f"table {name}"
        self.about_name = f"about {self.block_name}"

    @cached_property
    def _result(self) -> Result | str:
        """The table, or the sentence in place of one that divides what there is not."""
        try:
            return tables.build(self._reader, self.name, self.by)
        except UsageError as error:
            return f"{error}"

    @property
    def has_rows(self) -> bool:
        """Whether it has any."""
        return not isinstance(self._result, str) and self._result.rows > 0

    def block(self) -> Block:
        """The columns, each a list."""
        if isinstance(self._result, str):
            return json_block(self.block_name, [])
        data = self._result.data
        columns = []
        for place in range(data.num_columns):
            column = data.column(place)
            columns.append(column.to_pylist())
        return json_block(self.block_name, columns)

    def about(self) -> dict[str, Any]:
        """What the page says of it."""
        result = self._result
        if isinstance(result, str):
            return {**self.in_short(), "rows": 0, "empty": result}
        return {
            **self.in_short(),
            "rows": result.rows,
            "columns": [asdict(column) for column in result.columns],
            "notes": result.notes,
            "totals": dict(result.totals),
            "empty": result.empty,
        }

    def in_short(self) -> dict[str, Any]:
        """What is known before it is made; the block `about_name` has the rest."""
        by = f" --by {self.by}" if self.by else ""
        return {
            "name": self.name,
            "by": self.by,
            "meaning": _meaning(self.name),
            "rows": NOT_KNOWN,
            "block": self.block_name,
            "columns": [],
            "notes": [],
            "totals": {},
            "empty": "",
            "command": f"layerscope table {self.name}{by}",
        }


def report_tables(reader: Reader) -> list[ReportTable]:
    """All tables that a report may have."""
    return [ReportTable(reader, name, by) for name, by in _wanted()]


def _wanted() -> Iterable[tuple[str, str | None]]:
    for name in names_in_report():
        yield name, None
        for by in BY.get(name, ()):
            if by in tables.load(name).BY:
                yield name, by


def _meaning(name: str) -> str:
    """The first sentence of the table's documentation."""
    documentation = (tables.load(name).__doc__ or "").strip()
    return documentation.partition("\n\n")[0].replace("\n", " ")

"""The tables of `layerscope table` as blocks: the same rows, by column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

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
}
# The spans themselves are in the timeline.
_LEFT_OUT = ("spans",)


def names_in_report() -> list[str]:
    """The tables that the page has."""
    return [name for name in tables.names() if name not in _LEFT_OUT]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of the report: what the page says of it, and its rows."""

    about: dict[str, Any]
    result: Result

    @property
    def block_name(self) -> str:
        """The block with its rows."""
        return str(self.about["block"])

    def block(self) -> Block:
        """The columns, each a list."""
        data = self.result.data
        columns = [data.column(place).to_pylist() for place in range(data.num_columns)]
        return json_block(self.block_name, columns)


def report_tables(reader: Reader) -> list[ReportTable]:
    """All tables of the report; those that divide another one only where they have rows."""
    found = []
    for name, by in _wanted():
        result = _divided(reader, name, by) if by else tables.build(reader, name)
        if result is not None:
            found.append(ReportTable(_about(result, name, by), result))
    return found


def _divided(reader: Reader, name: str, by: str) -> Result | None:
    """The table by something else; None where the recording has nothing to tell apart."""
    try:
        result = tables.build(reader, name, by)
    except UsageError:
        return None
    return result if result.rows else None


def _wanted() -> Iterable[tuple[str, str | None]]:
    for name in names_in_report():
        yield name, None
        for by in BY.get(name, ()):
            if by in tables.load(name).BY:
                yield name, by


def _about(result: Result, name: str, by: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "by": by,
        "meaning": _meaning(name),
        "rows": result.rows,
        "block": f"table {name} {by}" if by else f"table {name}",
        "columns": [asdict(column) for column in result.columns],
        "notes": result.notes,
        "totals": dict(result.totals),
        "empty": result.empty,
        "command": f"layerscope table {name}{f' --by {by}' if by else ''}",
    }


def _meaning(name: str) -> str:
    """The first sentence of the table's documentation."""
    documentation = (tables.load(name).__doc__ or "").strip()
    return documentation.partition("\n\n")[0].replace("\n", " ")

"""The tables of `layerscope table` as blocks: the same rows, by column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from layerscope.analyse import tables
from layerscope.analyse.result import Result
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


def table_blocks(reader: Reader) -> tuple[list[dict[str, Any]], list[Block]]:
    """What the page says of each table, and their rows."""
    abouts, blocks = [], []
    for name, by in _wanted():
        result = tables.build(reader, name, by)
        if by is not None and not result.rows:
            continue
        block = table_block(result, name, by)
        blocks.append(block)
        abouts.append(_about(result, name, by, block.name))
    return abouts, blocks


def _wanted() -> Iterable[tuple[str, str | None]]:
    for name in names_in_report():
        yield name, None
        for by in BY.get(name, ()):
            if by in tables.load(name).BY:
                yield name, by


def table_block(result: Result, name: str, by: str | None) -> Block:
    """The columns of `result`, each a list."""
    columns = [result.data.column(place).to_pylist() for place in range(result.data.num_columns)]
    return json_block(f"table {name} {by}" if by else f"table {name}", columns)


def _about(result: Result, name: str, by: str | None, block: str) -> dict[str, Any]:
    return {
        "name": name,
        "by": by,
        "meaning": _meaning(name),
        "rows": result.rows,
        "block": block,
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

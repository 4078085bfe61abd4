"""Tables as Markdown, for a comment under a change: a heading, the table, and what must be said
beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TextIO

from layerscope.analyse.result import Result
from layerscope.show.screen import printable
from layerscope.show.terminal import column_cells, problem_lines

# What Markdown, the HTML in it, or the formulas that some pages typeset would obey.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&@$])")


def write(result: Result, stream: TextIO, heading: str, first: Iterable[str] = ()) -> None:
    """Write `result` under `heading`; the sentences of `first` stand above the table, all others
    below it.
    """
    stream.write(text(result, heading, first))


def text(result: Result, heading: str, first: Iterable[str] = ()) -> str:
    """`result` as the text of a comment."""
    blocks = [
        [f"### {_escaped(heading)}"],
        [f"- {_escaped(sentence)}" for sentence in first],
        _table(result),
    ]
    below = [*problem_lines(result.problems, not result.rows), *result.sentences]
    if result.left_out:
        below.insert(0, f"{result.left_out:,} more rows.")
    blocks.append([f"- {_escaped(sentence)}" for sentence in below])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _table(result: Result) -> list[str]:
    if not result.rows:
        return []
    row_units = result.data["unit"].to_pylist() if "unit" in result.data.column_names else []
    columns = [
        [
            _cell(cell)
            for cell in column_cells(
                c, result.data[c.name].to_pylist(), row_units, result.origin_ns
            )
        ]
        for c in result.columns
    ]
    lines = [
        [column.name for column in result.columns],
        ["---:" if column.is_number else "---" for column in result.columns],
        *map(list, zip(*columns, strict=True)),
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(cell: str) -> str:
    one_line = " ".join(cell.split())
    return _escaped(one_line)


def _escaped(words: str) -> str:
    shown = printable(words)
    return _SPECIAL.sub(r"\\\1", shown)

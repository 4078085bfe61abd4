"""Tables as aligned text: everything when it goes to a pipe or a file, fitted to the window in a
terminal.

Cells carry their unit (`2.92 ms`), headings are the column names that `--sort` and `--where` take.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct

from layerscope.analyse.result import (
    BY_ROW,
    BY_ROW_PER_S,
    BYTES,
    COUNT,
    GBYTE_PER_S,
    GFLOP_PER_S,
    NS,
    RATIO,
    SHARE,
    Result,
    ResultColumn,
)
from layerscope.model import units
from layerscope.model.events import Problem
from layerscope.show.code_names import short_names
from layerscope.show.screen import printable, styled

if TYPE_CHECKING:
    from rich.text import Text

_NOTHING = "-"
_SEPARATOR = "  "
# A shortened name still shows its first and its last part, so nothing gets narrower than this.
_NARROWEST_NAME = 24


def write(result: Result, stream: TextIO) -> None:
    """Print `result` on `stream`: styled and fitted in a terminal, plain and whole elsewhere."""
    if not stream.isatty():
        stream.write(text(result))
        return
    from rich.console import Console

    console = Console(file=styled(stream), highlight=False)
    for line in _styled(result, console.width):
        console.print(line, soft_wrap=True)


def text(result: Result, width: int | None = None) -> str:
    """`result` as plain text, no wider than `width` when one is given."""
    lines = [line for _, line in _lines(result, width)]
    return "".join(f"{line}\n" for line in lines)


def problem_sentence(problem: Problem) -> str:
    """What is missing, why, and what to do: one sentence."""
    remedy = f"; {problem.remedy}" if problem.remedy else ""
    if not problem.lost:
        return printable(f"About {problem.layer}: {problem.what}{remedy}.")
    verb = "Lost" if problem.code.startswith("lost_") else "Not recorded"
    return printable(f"{verb}: {problem.lost}, because {problem.what}{remedy}.")


def problem_lines(problems: Collection[Problem], is_empty: bool = False) -> list[str]:
    """What is said of `problems` beside a table: losses, which its numbers lack; where to read
    about the others.

    Beside a table that `is_empty` all of them are said: one may be the reason.
    """
    lost = [problem for problem in problems if is_empty or problem.code.startswith("lost_")]
    layers = sorted({problem.layer for problem in problems if problem.lost and problem not in lost})
    lines = [problem_sentence(problem) for problem in lost]
    if layers:
        lines.append(
            printable(
                f"Not everything was recorded ({', '.join(layers)}): `layerscope summary` says why."
            )
        )
    return lines


def display_width(value: str) -> int:
    """How many columns of a terminal `value` takes."""
    if value.isascii():
        return len(value)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in value
    )


def shortened(value: str, width: int) -> str:
    """`value` in at most `width` columns: its middle left out, because both ends of a name say
    something.
    """
    if display_width(value) <= width:
        return value
    head, tail = "", ""
    # Characters are taken from both ends in turn until the next one would not fit beside the
    # ellipsis.
    for position in range(len(value)):
        taken = value[position // 2] if position % 2 == 0 else value[-1 - position // 2]
        if display_width(head) + display_width(tail) + display_width(taken) + 1 > width:
            break
        head, tail = (head + taken, tail) if position % 2 == 0 else (head, taken + tail)
    return f"{head}…{tail}"


def _styled(result: Result, width: int) -> Iterable[Text]:
    from rich.text import Text

    # Cells are printable; so is everything else from here on.
    styles = {"heading": "bold", "totals": "bold", "problem": "yellow", "note": "dim"}
    return (
        Text(printable(line), style=styles.get(role, ""), no_wrap=True)
        for role, line in _lines(result, width)
    )


def _lines(result: Result, width: int | None) -> Iterable[tuple[str, str]]:
    """Every line with its role: problem, heading, row, totals or note."""
    for line in problem_lines(result.problems, not result.rows):
        yield "problem", line
    if result.rows:
        layout = _Layout.of(result, width)
        yield "heading", layout.line(layout.headings)
        for row in layout.rows:
            yield "row", layout.line(row)
        if layout.totals:
            yield "totals", layout.line(layout.totals)
        if layout.left_out:
            names = ", ".join(layout.left_out)
            yield "note", f"Too narrow for {names}: make the window wider, or pipe the table."
    if result.left_out:
        yield "note", f"{result.left_out:,} more rows; --top 0 shows all."
    for note in result.sentences:
        yield "note", printable(note)


class _Layout(Struct):
    """Cells as text, with the width of every column and on which side it is aligned."""

    headings: list[str]
    rows: list[list[str]]
    totals: list[str]
    widths: list[int]
    rightward: list[bool]
    left_out: list[str]

    @classmethod
    def of(cls, result: Result, width: int | None) -> _Layout:
        row_units = result.data["unit"].to_pylist() if "unit" in result.data.column_names else []
        # A column of words that has none says nothing to a person.
        columns = [
            column
            for column in result.columns
            if column.type != "string" or _has_words(result, column.name)
        ]
        cells, totals = [], []
        for column in columns:
            values = result.data[column.name].to_pylist()
            if column.name in result.totals:
                values.append(result.totals[column.name])
            made = column_cells(column, values, row_units, result.origin_ns)
            totals.append(made.pop() if column.name in result.totals else "")
            cells.append(made)
        headings = [printable(column.name) for column in columns]
        widths = [
            max(map(display_width, (heading, total, *column)))
            for heading, total, column in zip(headings, totals, cells, strict=True)
        ]
        rightward = [column.is_number or column.type == "bool" for column in columns]
        layout = cls(headings, [], totals if result.totals else [], widths, rightward, [])
        if width is not None:
            cells = layout._fit(cells, width)
        layout.rows = [list(row) for row in zip(*cells, strict=True)]
        return layout

    def line(self, cells: Sequence[str]) -> str:
        """One line of the table."""
        padded = []
        columns = zip(cells, self.widths, self.rightward, strict=True)
        for cell, width, right in columns:
            padding = " " * (width - display_width(cell))
            if right:
                padded.append(padding + cell)
            else:
                padded.append(cell + padding)
        line = _SEPARATOR.join(padded)
        return line.rstrip()

    def _fit(self, cells: list[list[str]], width: int) -> list[list[str]]:
        """Shorten names, widest first; when that is not enough leave out columns from the right."""
        self._narrow_names(width)
        shown = len(self.widths)
        while shown > 2 and self._excess(width, shown) > 0:
            shown -= 1
        self.left_out = self.headings[shown:]
        for part in (self.headings, self.totals, self.widths, self.rightward, cells):
            del part[shown:]
        if self.totals:
            self.totals = [
                shortened(cell, room) for cell, room in zip(self.totals, self.widths, strict=True)
            ]
        return [
            [shortened(cell, room) for cell in column]
            for column, room in zip(cells, self.widths, strict=True)
        ]

    def _narrow_names(self, width: int) -> None:
        """Take from the widest column of names, again and again, until all fit or none can give."""
        names = [index for index, right in enumerate(self.rightward) if not right]
        while self._excess(width) > 0:
            widest = max(names, key=self.widths.__getitem__, default=None)
            if widest is None or self.widths[widest] <= _NARROWEST_NAME:
                return
            others = [self.widths[index] for index in names if index != widest]
            fitting = self.widths[widest] - self._excess(width)
            wanted = max(fitting, *others, _NARROWEST_NAME)
            self.widths[widest] = min(wanted, self.widths[widest] - 1)

    def _excess(self, width: int, columns: int | None = None) -> int:
        """By how much the first columns are wider than `width`."""
        widths = self.widths[:columns]
        separators = len(_SEPARATOR) * (len(widths) - 1)
        return sum(widths) + separators - width


def _has_words(result: Result, column: str) -> bool:
    """Whether the column is not empty."""
    values = result.data[column]
    empty = int(values.null_count)
    return empty < result.rows


def column_cells(
    column: ResultColumn, values: list[Any], row_units: list[str], origin_ns: int
) -> list[str]:
    """The values of a column as people read them, with their units under each other."""
    if column.unit in (BY_ROW, BY_ROW_PER_S):
        per = "/s" if column.unit == BY_ROW_PER_S else ""
        return _aligned(
            [_cell(value, unit, per) for value, unit in zip(values, row_units, strict=True)]
        )
    if column.code:
        return [_NOTHING if value is None else printable(short_names(value)) for value in values]
    if column.instant:
        return [
            _NOTHING if value is None else f"{(value - origin_ns) / 1e9:.6f} s" for value in values
        ]
    made = [_cell(value, column.unit) for value in values]
    if column.signed:
        made = [
            f"+{cell}" if value and value > 0 else cell
            for cell, value in zip(made, values, strict=True)
        ]
    return _aligned(made) if column.unit in (NS, BYTES) else made


def _cell(value: Any, unit: str, per: str = "") -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == NS:
        return units.duration(value) + per
    if unit == BYTES:
        return units.size(value) + per
    if unit == SHARE:
        if 0 < value < 0.0005:
            return "<0.1 %"
        return f"{100 * value:.1f} %"
    if unit == RATIO:
        return f"{value:.2f}"
    if unit in (GFLOP_PER_S, GBYTE_PER_S):
        if 0 < value < 0.005:
            return f"<0.01 {unit}"
        return f"{units.three_digits(value)} {unit}"
    if unit == COUNT:
        text = units.three_digits(value)
        if isinstance(value, int):
            text = f"{value:,}"
        return f"{text} {per}" if per else text
    return printable(str(value))


def _aligned(cells: list[str]) -> list[str]:
    """Units of different length padded on the right, so that the numbers stand under each other."""
    parts = [cell.partition(" ") for cell in cells]
    numbers = [number for number, _, _ in parts]
    suffixes = [unit for _, _, unit in parts]
    width = max(map(len, suffixes), default=0)
    if not width:
        return numbers
    pairs = zip(numbers, suffixes, strict=True)
    return [f"{number} {unit:<{width}}" for number, unit in pairs]

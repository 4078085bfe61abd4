"""All trials of `layerscope tune` as one page: a plot, and a table with the same figures. No
script, no network.

A row for each setting, a dot for each run; each row can be reached by the Tab key and says its
figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import IO

from msgspec import Struct

from layerscope.show.screen import printable

_WIDTH, _LABEL, _RIGHT, _ROW, _TOP = 1100, 330, 30, 30, 56
_LETTER_PX = 7.0
_TICKS = 6
_STYLE = Path(__file__).with_suffix(".css")


class Row(Struct, frozen=True):
    """One setting. `values`: of its runs, as they were measured; `cells`: of the table, as the
    headings say.

    `role`: best, gone (disqualified), or empty.
    """

    name: str
    values: tuple[float, ...]
    cells: tuple[str, ...]
    role: str = ""


class TunePage(Struct, frozen=True):
    """`axis`: what the values are; `shown` puts one into words. The first row is the defaults."""

    title: str
    verdict: str
    command: str
    axis: str
    unit_values: tuple[str, ...]  # what the ticks say, made of `ticks`
    ticks: tuple[float, ...]
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    sentences: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()  # which columns are numbers


def ticks(values: Sequence[float]) -> tuple[float, ...]:
    """Round numbers from 0 to the largest of `values` or just above it; of numbers far apart powers
    of ten.
    """
    highest = max(values, default=1.0)
    lowest = min(values, default=highest)
    if _is_wide(lowest, highest):
        return tuple(
            10.0**power
            for power in range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
        )
    rough = highest / _TICKS if highest > 0 else 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return tuple(
        round(place * step, 12) for place in range(max(1, math.ceil(highest / step - 1e-9)) + 1)
    )


def write(page: TunePage, stream: IO[bytes]) -> None:
    """Write the page."""
    headings = "".join(
        f'<th scope="col"{_number(page, place)}>{_text(name)}</th>'
        for place, name in enumerate(page.headings)
    )
    rows = "\n".join(_table_row(page, row) for row in page.rows)
    said = "".join(f"<li>{_text(sentence)}</li>" for sentence in page.sentences)
    made = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(page.title)}</title>
<style>{_STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<main>
<h1>{_text(page.title)}</h1>
<p id="verdict">{_text(page.verdict)}</p>
{f'<pre id="command">{_text(page.command)}</pre>' if page.command else ""}
<h2 id="plot-title">Every run: {_text(page.axis)}</h2>
{_plot(page)}
{f'<h2>Notes</h2><ul id="sentences">{said}</ul>' if said else ""}
<h2>The same in figures</h2>
<table id="settings">
<thead><tr>{headings}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</main>
</body>
</html>
"""
    stream.write(made.encode("utf-8", "backslashreplace"))


def _plot(page: TunePage) -> str:
    height = _TOP + _ROW * len(page.rows) + 20
    bottom = _TOP + _ROW * len(page.rows)
    parts = [
        f'<svg id="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'role="list" '
        'aria-labelledby="plot-title">'
    ]
    for value, words in zip(page.ticks, page.unit_values, strict=True):
        x = _at(page, value)
        parts.append(f'<path class="grid" aria-hidden="true" d="M{x:.1f} {_TOP - 6}V{bottom}"/>')
        parts.append(
            f'<text class="tick" aria-hidden="true" text-anchor="middle" x="{x:.1f}" '
            f'y="{_TOP - 14}">'
            f"{_text(words)}</text>"
        )
    if page.rows and page.rows[0].values:
        x = _at(page, _median(page.rows[0].values))
        parts.append(f'<path class="default" aria-hidden="true" d="M{x:.1f} {_TOP - 6}V{bottom}"/>')
    parts += [_plot_row(page, row, _TOP + place * _ROW) for place, row in enumerate(page.rows)]
    return "\n".join([*parts, "</svg>"])


def _plot_row(page: TunePage, row: Row, y: int) -> str:
    middle = y + _ROW / 2
    pairs = zip(page.headings, row.cells, strict=True)
    label = printable("; ".join(f"{heading}: {cell}" for heading, cell in pairs if cell))
    room = int((_LABEL - 20) / _LETTER_PX)
    name = printable(row.name)
    shown = name if len(name) <= room else f"{name[: room - 1]}…"
    dots = "".join(
        f'<circle class="dot" cx="{_at(page, value):.1f}" cy="{middle:.1f}" r="5"/>'
        for value in row.values
    )
    median = ""
    if row.values:
        x = _at(page, _median(row.values))
        median = f'<path class="median" d="M{x:.1f} {middle - 9:.1f}v18"/>'
    return (
        f'<g class="row {row.role}" tabindex="0" role="listitem" aria-label="{_text(label)}">'
        f"<title>{_text(label)}</title>"
        f'<rect class="band" x="1" y="{y + 1}" width="{_WIDTH - 2}" height="{_ROW - 2}" rx="4"/>'
        f'<text x="10" y="{middle + 4.5:.1f}">{_text(shown)}</text>{dots}{median}</g>'
    )


def _table_row(page: TunePage, row: Row) -> str:
    cells = [f'<th scope="row">{_text(row.cells[0])}</th>'] + [
        f"<td{_number(page, place)}>{_text(cell)}</td>"
        for place, cell in enumerate(row.cells)
        if place
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _number(page: TunePage, place: int) -> str:
    return ' class="number"' if place in page.numbers else ""


def _at(page: TunePage, value: float) -> float:
    """Where a value lies, from left to right."""
    first, last = page.ticks[0], page.ticks[-1]
    share = (
        math.log(value / first) / math.log(last / first)
        if first > 0
        else (value - first) / (last - first)
    )
    return _LABEL + share * (_WIDTH - _LABEL - _RIGHT)


def _is_wide(lowest: float, highest: float) -> bool:
    return lowest > 0 and highest > 20 * lowest


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    middle = ordered[half - 1] + ordered[half]
    return middle / 2


def _text(words: str) -> str:
    return escape(printable(words)).encode("utf-8", "backslashreplace").decode()

"""Curves over time as a small SVG file, one panel below the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]

WIDTH, PANEL_HEIGHT, GAP, TOP = 860, 230, 54, 60
LEFT, RIGHT = 64, 150  # room for the scale, and for the names of the curves
COLOURS = ("#1f5fa8", "#c2571a", "#2e8540", "#7a3e9d", "#555555")
TICKS = 5
LINE = 16


@dataclass(frozen=True)
class Panel:
    """Curves that share a scale from 0 on; `limit` is a level that they should stay below."""

    title: str
    curves: Mapping[str, Points]
    limit: tuple[str, float] | None = None


def draw(title: str, time_axis: str, moment: tuple[str, float], panels: Sequence[Panel]) -> str:
    """The whole picture; every point is (time, value), and `moment` a time with a name."""
    height = TOP + len(panels) * (PANEL_HEIGHT + GAP)
    last = (
        max(
            (x for panel in panels for points in panel.curves.values() for x, _ in points),
            default=1.0,
        )
        or 1.0
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 22, title, 'font-size="15" font-weight="bold"'),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (PANEL_HEIGHT + GAP), last, moment)
    parts.append(_text(LEFT, height - 8, time_axis))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, top: float, last: float, moment: tuple[str, float]) -> list[str]:
    """Title, scales, curves and their names."""
    values = [y for points in panel.curves.values() for _, y in points]
    highest = max([*values, panel.limit[1] if panel.limit else 0.0, 1e-9])
    rows = ticks(highest)
    right, bottom = WIDTH - RIGHT, top + PANEL_HEIGHT
    across, up = (right - LEFT) / last, PANEL_HEIGHT / rows[-1]
    parts = [_text(LEFT, top - 8, panel.title, 'font-weight="bold"')]
    for value in rows:
        y = bottom - value * up
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#dddddd"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{value:g}", 'text-anchor="end"'))
    for value in ticks(last):
        if value <= last:
            parts.append(
                _text(LEFT + value * across, bottom + LINE, f"{value:g}", 'text-anchor="middle"')
            )
    x = LEFT + min(moment[1], last) * across
    parts.append(
        f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="#999999" stroke-dasharray="2 3"/>'
    )
    parts.append(_text(x - 4, top + 12, moment[0], 'text-anchor="end" fill="#777777"'))
    if panel.limit:
        y = bottom - panel.limit[1] * up
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#b00020" stroke-dasharray="6 4"/>')
        parts.append(_text(right + 8, y + 4, panel.limit[0], 'fill="#b00020"'))
    for number, (name, points) in enumerate(panel.curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{LEFT + x * across:.1f},{bottom - y * up:.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        parts.append(_text(right + 8, top + LINE * (number + 2), name, f'fill="{colour}"'))
    return parts


def ticks(highest: float) -> list[float]:
    """Round numbers from 0 to `highest` or just above it, about five of them."""
    rough = highest / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(i * step, 9) for i in range(math.ceil(highest / step - 1e-9) + 1)]


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'

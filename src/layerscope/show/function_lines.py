"""The heaviest functions of a program without operators, as lines of the summary."""

from __future__ import annotations

from layerscope.analyse.top_functions import TopFunctions
from layerscope.model import units
from layerscope.show.screen import printable
from layerscope.show.terminal import display_width, shortened

_HEADING = "Function (self time)"
_NAME = 62


def function_lines(functions: TopFunctions) -> list[str]:
    """A table of names with their CPU time, and between what their share of all of it lies."""
    names = [shortened(printable(row.name), _NAME) for row in functions.rows]
    width = max(map(display_width, (_HEADING, *names)))
    lines = [f"{_HEADING:<{width}}  {'CPU':>8}  {'share':>5}  95 % between"]
    for name, row in zip(names, functions.rows, strict=True):
        padding = " " * (width - display_width(name))
        spent = units.duration(row.self_ns)
        share = f"{100 * row.self_share:.0f} %"
        low = f"{100 * row.low:.0f}"
        high = f"{100 * row.high:.0f}"
        between = f"{low} and {high} %"
        figures = f"{spent:>8}  {share:>5}  {between:>12}"
        lines.append(f"{name}{padding}  {figures}")
    return lines

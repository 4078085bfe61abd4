"""The heaviest functions of a program without operators, as lines of the summary."""

from __future__ import annotations

from layerscope.analyse.top_functions import FunctionRow, TopFunctions
from layerscope.model import units
from layerscope.show.screen import printable
from layerscope.show.terminal import display_width, shortened

_SELF_HEADING = "Function (self time)", f"{'CPU':>8}  {'share':>5}  95 % between"
_TOTAL_HEADING = "Function, with what it calls", f"{'total':>8}  {'share':>5}  {'self':>8}"
_NAME = 62


def function_lines(functions: TopFunctions) -> list[str]:
    """A table of names with their CPU time: between what their share of all of it lies, or their
    time with what they called.
    """
    name_heading, heading = _TOTAL_HEADING if functions.is_total else _SELF_HEADING
    figures = _total_figures if functions.is_total else _self_figures
    names = [shortened(printable(row.name), _NAME) for row in functions.rows]
    width = max(map(display_width, (name_heading, *names)))
    lines = [f"{name_heading:<{width}}  {heading}"]
    for name, row in zip(names, functions.rows, strict=True):
        padding = " " * (width - display_width(name))
        lines.append(f"{name}{padding}  {figures(row)}")
    return lines


def _self_figures(row: FunctionRow) -> str:
    spent = units.duration(row.self_ns)
    share = f"{100 * row.self_share:.0f} %"
    between = f"{100 * row.low:.0f} and {100 * row.high:.0f} %"
    return f"{spent:>8}  {share:>5}  {between:>12}"


def _total_figures(row: FunctionRow) -> str:
    total = units.duration(row.total_ns)
    own = units.duration(row.self_ns)
    share = f"{100 * row.total_share:.0f} %"
    return f"{total:>8}  {share:>5}  {own:>8}"

"""What many short operators of a kind cost, that one operator on all of the data could do: their
own time, and that in Python on the lines that call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans

if TYPE_CHECKING:
    from layerscope.analyse.findings.finding import Price
    from layerscope.analyse.findings.workload import Workload

# The loader and the optimizer have rules of their own.
OUTSIDE = "coalesce(phase, '') NOT IN ('loading', 'optimizer')"
_PYTHON = f"""
    SELECT step, weight_ns AS ns FROM step_samples
    WHERE is_critical AND kind = 'cpu' AND {OUTSIDE} AND phase <> 'backward' AND operator = ''
        AND line IN ({{lines}})"""
_LINES = f"""
    SELECT line FROM step_samples
    WHERE is_critical AND {OUTSIDE} AND line <> '' AND operator IN ({{names}})"""
_SUM = "SELECT step, sum(ns) AS ns FROM ({cost}) GROUP BY step"


def price_of_repeated(workload: Workload, spans: str, names: str) -> Price:
    """The price of the operators that `spans` selects (step, self_ns); `names`: their names."""
    cost = f"SELECT step, self_ns AS ns FROM ({spans})"
    if not workload.missing(("samples",)):
        python = _PYTHON.format(lines=_LINES.format(names=names))
        cost = f"{cost} UNION ALL {python}"
    return price_of_spans(workload, _SUM.format(cost=cost))


def line_of_repeated(workload: Workload, names: str) -> str:
    """The line that calls most of the operators `names`; empty without stacks."""
    if workload.missing(("samples",)):
        return ""
    condition = f"is_critical AND kind = 'cpu' AND {OUTSIDE} AND operator IN ({names})"
    return largest(workload, "step_samples", "line", condition, "weight_ns")

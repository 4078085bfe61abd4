"""What many short operators of a kind cost that follow each other, where one operator on all of
the data would do: the stretches of time from the first to the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import AFTER_EFFECTS

if TYPE_CHECKING:
    from layerscope.analyse.findings.finding import Price
    from layerscope.analyse.findings.workload import Workload

# The loader and the optimizer have rules of their own.
OUTSIDE = "coalesce(phase, '') NOT IN ('loading', 'optimizer')"
# Python between two calls in a loop takes less; what takes longer is no part of the loop's cost.
BETWEEN_NS = 20_000
# Operators lie inside of others, so the end before is the latest of all that began before.
_STRETCHES = """
    SELECT step, sum(
        CASE WHEN start_ns - before_ns BETWEEN 0 AND {between} THEN start_ns - before_ns ELSE 0 END
        + greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns)))) AS ns
    FROM (
        SELECT step, start_ns, start_ns + dur_ns AS end_ns, max(start_ns + dur_ns) OVER (
            PARTITION BY track, step ORDER BY start_ns, dur_ns DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
        FROM step_spans WHERE {condition})
    GROUP BY step"""


def price_of_repeated(workload: Workload, condition: str, beside: float = AFTER_EFFECTS) -> Price:
    """The price of the operators whose rows in `step_spans` fulfil `condition`, and of what Python
    does between one and the next. `beside`: as in `Workload.price`.
    """
    sql = _STRETCHES.format(between=BETWEEN_NS, condition=condition)
    return price_of_spans(workload, sql, beside=beside)


def line_of_repeated(workload: Workload, names: str) -> str:
    """The line that calls most of the operators `names`; empty without stacks."""
    if workload.missing(("samples",)):
        return ""
    condition = f"is_critical AND kind = 'cpu' AND {OUTSIDE} AND operator IN ({names})"
    return largest(workload, "step_samples", "line", condition, "weight_ns")

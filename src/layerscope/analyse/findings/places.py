"""Where in the program most of a finding's time is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.findings.finding import Where

if TYPE_CHECKING:
    from layerscope.analyse.findings.workload import Workload

_LARGEST = """
    SELECT {name} AS name, sum({weight}) AS weight FROM {view} WHERE {condition}
    GROUP BY 1 ORDER BY weight DESC, name LIMIT 1"""


def place_of_samples(workload: Workload, condition: str, weight: str = "weight_ns") -> Where:
    """The line, operator and module that most of the samples of `condition` were in, by their
    `weight`.
    """
    found = {}
    for name in ("line", "operator", "module"):
        found[name] = largest(workload, "step_samples", name, condition, weight)
    return Where(line=found["line"], operator=found["operator"], module=found["module"])


def largest(workload: Workload, view: str, name: str, condition: str, weight: str) -> str:
    """The value of column `name` that most of the `weight` of the rows of `condition` has."""
    sql = _LARGEST.format(name=name, weight=weight, view=view, condition=condition)
    rows = workload.rows(sql)
    return str(rows[0]["name"] or "") if rows else ""

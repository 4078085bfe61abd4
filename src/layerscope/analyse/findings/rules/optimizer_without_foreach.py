"""The optimizer updates many parameters one after the other, in Python.

**What it looks for.** Many operators in the optimizer's step and none that updates several tensors
at once (`_foreach_`, `_fused_`). The price is the time of the step in no operator: the loop in
Python.

**Why it matters.** Each parameter costs several calls from Python, however small it is.

**What to do.** `foreach=True` of PyTorch's optimizers: on a CPU it is not the default.
`fused=True`, where the optimizer has it, saves the operators too, which the price does not count.

**When it is wrong.** With few large parameters the arithmetic takes the time, not Python. `foreach`
keeps temporary tensors of all parameters at once, which takes memory.

Source: the anti-pattern of torch.profiler about optimizers of single tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "operators")
THRESHOLDS = (
    Threshold("saved", 0.5, "of the time, at least", "lists of tensors are made in Python too"),
    Threshold(
        "operators",
        50.0,
        "operators in a step of the optimizer",
        "fewer are no loop over many parameters: SGD calls 2 of each, Adam 8",
    ),
)
REMEDIES = (
    Remedy("update the parameters together: foreach=True in the call that makes the optimizer"),
)
_IN_OPTIMIZER = "phase = 'optimizer' AND kind = 'function'"
_COUNTS = f"""
    SELECT coalesce(sum(count), 0) AS operators,
        coalesce(sum(count) FILTER (regexp_matches(name, '_foreach_|_fused_')), 0) AS together
    FROM operator_totals WHERE {_IN_OPTIMIZER} AND name NOT LIKE '%zero_'"""
_STEP = "phase = 'optimizer' AND kind = 'optimizer' AND name LIKE '%.step'"
_PRICE = f"SELECT step, sum(self_ns) AS ns FROM step_optimizers WHERE {_STEP} GROUP BY step"
# How many parameters an optimizer has: told by the program's own.
PARAMETERS = """
    SELECT DISTINCT name FROM marks JOIN args USING (args)
    WHERE kind = 'setting' AND json LIKE '%"optimizer"%' ORDER BY name"""
EVIDENCE = """
    SELECT kind, name, sum(count)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns
    FROM operator_totals WHERE phase = 'optimizer'
    GROUP BY ALL ORDER BY self_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time of the optimizer in Python, if it updates its parameters one by one."""
    counts = workload.rows(_COUNTS)[0]
    operators = float(counts["operators"]) / len(workload.step)
    if counts["together"] or operators < limits["operators"]:
        return
    price = price_of_spans(workload, _PRICE, limits["saved"])
    longest = largest(workload, "operator_totals", "name", _STEP, "self_ns")
    parameters = [row["name"] for row in workload.rows(PARAMETERS)]
    yield Finding(
        rule="optimizer_without_foreach",
        title=f"the optimizer updates its parameters one by one, in {operators:,.0f} operators",
        price=price,
        where=Where(operator=longest),
        remedies=REMEDIES,
        notes=tuple(parameters),
        evidence=(workload.evidence(EVIDENCE),),
    )

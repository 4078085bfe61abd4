"""Many short operators of one kind follow each other, where one on all of the data would do.

**What it looks for.** One operator that one module calls many times in a step, or in a program
without steps, each time for some µs. The price is their time, and that of Python between one and
the next.

**Why it matters.** A short operator is mostly its way there: Python, the dispatcher, the memory for
its result. A vectorised one takes this way once.

**What to do.** Put the small tensors into a large one (`torch.stack`, a batch dimension) and call
the operator once; or compile the function with `torch.compile`, which joins operators.

**When it is wrong.** Where each result decides what is computed next. For loops that take elements
out of a tensor see `tensor_indexed_in_loop`, for optimizers `optimizer_without_foreach`.

Source: the chains of small operators that compilers of networks look for.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.repeated import (
    OUTSIDE,
    line_of_repeated,
    price_of_repeated,
)
from layerscope.analyse.findings.rules.tensor_indexed_in_loop import ELEMENTS
from layerscope.analyse.findings.workload import Workload

NEEDS = ("operators",)
THRESHOLDS = (
    Threshold("calls", 100.0, "calls in a step", "fewer take less than a millisecond"),
    Threshold(
        "calls_of_run",
        10000.0,
        "calls in a program without steps",
        "fewer take less than a tenth of a second",
    ),
    Threshold("short", 10000.0, "ns", "a longer operator is mostly its own work"),
    Threshold(
        "beside",
        0.43,
        "of their time",
        "each makes and frees a tensor, and the code between two of them leaves the caches",
    ),
)
REMEDIES = (Remedy("put the small tensors into one and call the operator once, or torch.compile"),)
# Counts are of all steps. Without steps there are no phases.
_PHASE = "coalesce(phase, '')"
_REPEATED = f"""
    SELECT name, module, {_PHASE} FROM operator_totals
    WHERE {OUTSIDE} AND kind IN ('function', 'backward') AND name NOT IN ({ELEMENTS})
    GROUP BY name, module, phase
    HAVING sum(count) >= {{calls}} AND sum(self_ns) < {{short}} * sum(count)"""
_SPANS = """
    SELECT name, self_ns, count
    FROM operator_totals WHERE {condition}"""
_CONDITION = f"{OUTSIDE} AND (name, module, {_PHASE}) IN ({{repeated}})"
_EVIDENCE = """
    SELECT name, sum(count)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns
    FROM ({spans}) GROUP BY ALL ORDER BY self_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time of short operators, and of Python between them."""
    steps = len(workload.step)
    calls = limits["calls_of_run"]
    if workload.has_steps:
        calls = limits["calls"] * steps
    repeated = _REPEATED.format(calls=calls, short=limits["short"])
    condition = _CONDITION.format(repeated=repeated)
    spans = _SPANS.format(condition=condition)
    question = _EVIDENCE.format(spans=spans)
    evidence = workload.evidence(question)
    rows = evidence.rows.to_pylist()
    if not rows:
        return
    names = f"SELECT name FROM ({repeated})"
    called = sum(row["calls"] for row in rows)
    a_step = called / steps
    line = line_of_repeated(workload, names)
    yield Finding(
        rule="small_operators",
        title=f"{a_step:,.0f} short operators of a {workload.per} repeat each other",
        price=price_of_repeated(workload, condition, limits["beside"]),
        where=Where(line=line, operator=rows[0]["name"]),
        remedies=REMEDIES,
        evidence=(evidence,),
    )

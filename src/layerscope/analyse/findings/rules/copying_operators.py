"""Tensors are copied into another order, on the thread that makes the steps.

**What it looks for.** The time in `aten::clone`, which `contiguous()`, `reshape()` of a transposed
tensor and `clone()` call, in the step outside of the data loader and the optimizer.

**Why it matters.** A copy reads and writes the whole tensor and computes nothing; a transposed one
does so in an order that caches dislike.

**What to do.** Copy once before the loop; keep the order that the next layer wants; call the
operator on the transposed tensor, most take it as it is; `reshape` only where `view` does not do.

**When it is wrong.** An operator that is much slower on transposed tensors is worth a copy before
it.

Source: TraceLens, which looks for transposes above 10 %.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("steps", "operators")
THRESHOLDS = (
    Threshold("share", 0.08, "of a step", "the copies of an ordinary network take 1 or 2 %"),
    Threshold(
        "beside",
        0.76,
        "of a copy's time",
        "its memory is given back later, and what was in the caches has to be read again",
    ),
)

REMEDIES = (Remedy("copy once before the loop, or let the operators work on the tensor as it is"),)
_COPIES = """kind = 'function' AND name = 'aten::clone'
        AND coalesce(phase, '') NOT IN ('loading', 'optimizer')"""
_PRICE = f"SELECT step, sum(dur_ns) AS ns FROM step_spans WHERE {_COPIES} GROUP BY step"
EVIDENCE = f"""
    SELECT module, phase, sum(count)::BIGINT AS copies, sum(dur_ns)::BIGINT AS total_ns
    FROM operator_totals WHERE {_COPIES}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""
_IN_COPY = """is_critical AND kind = 'cpu' AND operator IN ('aten::copy_', 'aten::clone')
        AND phase NOT IN ('loading', 'optimizer')"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in copies."""
    evidence = workload.evidence(EVIDENCE)
    if not evidence.rows.num_rows:
        return
    price = price_of_spans(workload, _PRICE, beside=limits["beside"])
    module = largest(workload, "operator_totals", "module", _COPIES, "dur_ns")
    yield Finding(
        rule="copying_operators",
        title=f"{percent(price.cost_share)} of a step copies tensors into another order",
        price=price,
        where=Where(module=module, line=line_of_copies(workload)),
        remedies=REMEDIES,
        evidence=(evidence,),
        certainty=LIKELY,
        is_below=price.cost_share < limits["share"],
    )


def line_of_copies(workload: Workload) -> str:
    """The line that most samples of copies have; empty without stacks."""
    if workload.missing(("samples",)):
        return ""
    return largest(workload, "step_samples", "line", _IN_COPY, "weight_ns")

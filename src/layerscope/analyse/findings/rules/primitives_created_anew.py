"""oneDNN creates primitives for new problems all the time, since the shapes change.

**What it looks for.** Creations in measured steps of problems that were not seen before. The price
is the time of the operators that create them, without what primitives compute there and without the
creation of problems that the library has already.

**Why it matters.** For a new problem oneDNN chooses an implementation and compiles code, 0.1 to
1 ms; one that it knows takes some µs.

**What to do.** Let batches have few different shapes: pad them to multiples, or sort the samples by
their length. If more problems come and go than the library keeps (1024), raise
`ONEDNN_PRIMITIVE_CACHE_CAPACITY`.

**When it is wrong.** A short run meets shapes for the first time that a long one meets again.
Padding computes on numbers that nobody needs: measure it with `--prove`.

Source: oneDNN's documentation of the primitive cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "primitives")
THRESHOLDS = (
    Threshold(
        "steps",
        0.1,
        "of the steps",
        "a program that meets a new problem in fewer steps has settled",
    ),
    Threshold("known", 10000.0, "ns", "the creation of a problem that the library has already"),
)
REMEDIES = (Remedy("let batches have few different shapes: pad them to a multiple of a length"),)
# The library says by itself only in its log whether it had the problem.
_NEW = """
    SELECT step, dur_ns, primitive_kind, operator, operator_span, operator_ns, module
    FROM step_primitives
    WHERE kind = 'create' AND is_critical
    QUALIFY coalesce(NOT cache_hit, dur_ns > {known} AND 1 = row_number() OVER (
        PARTITION BY primitive_kind, operator, dtype, formats, problem ORDER BY start_ns))"""
_COUNT = "SELECT count(DISTINCT step) AS steps, count(*) AS created FROM ({new})"
# An operator may create several.
_PRICE = """
    SELECT step, sum(greatest(greatest(coalesce(operator_ns, 0) - executed_ns, created_ns)
        - created * {known}, 0)) AS ns
    FROM (
        SELECT step, operator_span, any_value(operator_ns) AS operator_ns,
            sum(dur_ns) AS created_ns, count(*) AS created
        FROM ({new}) GROUP BY step, operator_span) anew
    LEFT JOIN (
        SELECT operator_span, sum(dur_ns) AS executed_ns FROM step_primitives
        WHERE kind = 'execute' AND share_of IS NULL GROUP BY operator_span) USING (operator_span)
    GROUP BY step"""
_EVIDENCE = """
    SELECT primitive_kind, operator, module, count(*) AS created, count(DISTINCT step) AS steps,
        sum(dur_ns)::BIGINT AS total_ns, median(dur_ns)::BIGINT AS median_ns
    FROM ({new}) GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The creation of primitives for new problems."""
    known = limits["known"]
    new = _NEW.format(known=known)
    counts = workload.rows(_COUNT.format(new=new))[0]
    steps = len(workload.step)
    if counts["steps"] < limits["steps"] * steps:
        return
    created = counts["created"] / steps
    cost = _PRICE.format(known=known, new=new)
    price = price_of_spans(workload, cost)
    evidence = workload.evidence(_EVIDENCE.format(new=new))
    module = largest(workload, f"({new})", "module", "true", "dur_ns")
    yield Finding(
        rule="primitives_created_anew",
        title=f"oneDNN creates {created:,.1f} primitives in a step for shapes it has not seen yet",
        price=price,
        where=Where(module=module),
        remedies=REMEDIES,
        evidence=(evidence,),
    )

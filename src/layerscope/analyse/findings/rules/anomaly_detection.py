"""PyTorch looks for numbers that are none in every gradient, and remembers where each came from.

**What it looks for.** A check of nearly every backward function (`aten::isnan` in backward passes).
The price is the time of these checks, and that in which the forward pass writes down the Python
stack of every operator.

**Why it matters.** `torch.autograd.set_detect_anomaly(True)` finds the operator behind a NaN. Left
on, it reads each gradient once more and walks the whole stack at each operator, which makes steps
of small operators several times slower.

**What to do.** `torch.autograd.set_detect_anomaly(False)`; `torch.autograd.detect_anomaly()` as a
context manager only around the steps that are to be looked at.

**When it is wrong.** While a NaN is being looked for. Watching the loss for one costs nearly
nothing.

Source: PyTorch's performance tuning guide, on debugging interfaces; its documentation of anomaly
detection.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "operators", "samples")
THRESHOLDS = (
    Threshold(
        "checked",
        0.5,
        "checks a backward function",
        "anomaly detection checks each of them once or more; a program of its own checks a loss",
    ),
)
REMEDIES = (
    Remedy("switch it off once the fault is found: torch.autograd.set_detect_anomaly(False)"),
)
# Around each function there is a span of the engine that calls it.
_COUNTS = """
    SELECT coalesce(sum(count) FILTER (name = 'aten::isnan'), 0)::DOUBLE AS checks,
        coalesce(sum(count) FILTER (kind = 'backward' AND name NOT LIKE '%evaluate_function%'), 0)
            ::DOUBLE AS functions
    FROM operator_totals WHERE phase = 'backward'"""
# Versions differ in how the answer of a check is read; each operator here calls the one behind it.
_CHECKS = """
    SELECT step, coalesce(sum(dur_ns) FILTER (name = 'aten::isnan'), 0)
        + greatest(coalesce(sum(dur_ns) FILTER (name = 'aten::_is_any_true'), 0),
            coalesce(sum(dur_ns) FILTER (name = 'aten::any'), 0))
        + greatest(coalesce(sum(dur_ns) FILTER (name = 'aten::is_nonzero'), 0),
            coalesce(sum(dur_ns) FILTER (name = 'aten::item'), 0)) AS ns
    FROM step_spans WHERE phase = 'backward' GROUP BY step"""
_WRITES = """
    is_critical AND (kind = 'cpu' OR state = 'preempted') AND stack IN (
        SELECT stack FROM stack_frames JOIN frames USING (frame)
        WHERE (layer = 'python' AND name = 'format_stack')
            OR (layer = 'native' AND name LIKE 'torch::autograd::%AnomalyMetadata::%'))"""
_PRICE = f"""
    SELECT step, sum(ns)::BIGINT AS ns FROM ({_CHECKS} UNION ALL
        SELECT step, weight_ns AS ns FROM step_samples WHERE {_WRITES})
    GROUP BY step"""
EVIDENCE = """
    SELECT name, sum(count)::BIGINT AS calls, sum(dur_ns)::BIGINT AS total_ns
    FROM operator_totals WHERE phase = 'backward' AND (kind = 'backward' OR name IN (
        'aten::isnan', 'aten::_is_any_true', 'aten::any', 'aten::is_nonzero', 'aten::item'))
    GROUP BY name ORDER BY name <> 'aten::isnan', calls DESC, name LIMIT 10"""
STACKS = f"""
    SELECT operator, module, sum(weight_ns)::BIGINT AS writes_stacks_ns, count(*) AS samples
    FROM step_samples WHERE {_WRITES}
    GROUP BY ALL ORDER BY writes_stacks_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """What the checks take, and what is written down for them."""
    counts = workload.rows(_COUNTS)[0]
    functions = counts["functions"] or 0
    if not functions or counts["checks"] < limits["checked"] * functions:
        return
    checks = counts["checks"] / len(workload.step)
    yield Finding(
        rule="anomaly_detection",
        title=f"anomaly detection is on: {checks:,.0f} checks of gradients in a step",
        price=price_of_spans(workload, _PRICE),
        where=Where(operator="aten::isnan"),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE), workload.evidence(STACKS)),
    )

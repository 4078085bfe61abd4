"""Weights that never change are brought into oneDNN's layout in every request.

**What it looks for.** The same reorder into a layout of weights, under one operator and one module,
in nearly all requests of a process that never updates a parameter.

**Why it matters.** The result is thrown away each time. Beside a small batch it takes longer than
the layer itself.

**What to do.** Bring the weights into the layout once, for the shape that the inputs have:
`torch.ops.mkldnn_prepacked.conv2d_prepack` and `conv2d_run`, or `torch.compile` with `freezing`.

**When it is wrong.** In training weights change, and the reorder is needed: there this rule does
not look. Larger batches make it cheap. `torch.utils.mkldnn.to_mkldnn` and
`torch.jit.optimize_for_inference` guess the shape: with another one the weights are reordered all
the same, from a layout that is slower to read.

Source: oneDNN's guide on memory formats, "weights have to be reordered once".
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("steps", "primitives")
THRESHOLDS = (
    Threshold(
        "saved",
        0.3,
        "of the reorders, at least",
        "a reorder brings the weights into the caches, which the operator then does by itself",
    ),
    Threshold("requests", 0.9, "of all requests", "a layer that only some have is another branch"),
)
REMEDIES = (
    Remedy(
        "bring the weights into the layout once: torch.ops.mkldnn_prepacked, with the input's shape"
    ),
)

_LEARNS = """
    SELECT count(*) + (SELECT count(*) FROM measured_steps WHERE backward_ns + optimizer_ns > 0)
        AS n
    FROM totals WHERE layer = 'operators' AND kind IN ('backward', 'optimizer')"""
# Only of weights the first dimension, their output, is in blocks.
_INTO_WEIGHTS = """primitive_kind = 'reorder' AND kind = 'execute' AND share_of IS NULL
        AND is_critical AND regexp_matches(formats, '> B?A')"""
_WEIGHTS = f"""
    SELECT operator, module, problem, formats, sum(dur_ns)::BIGINT AS total_ns,
        count(DISTINCT step) AS requests
    FROM step_primitives WHERE {_INTO_WEIGHTS}
    GROUP BY operator, module, problem, formats
    HAVING count(DISTINCT step) >= {{least}}"""
_PRICE = f"""
    SELECT step, sum(dur_ns) AS ns
    FROM step_primitives SEMI JOIN ({{weights}}) USING (operator, module, problem, formats)
    WHERE {_INTO_WEIGHTS} GROUP BY step"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The reorders of weights that are the same in all requests."""
    if workload.rows(_LEARNS)[0]["n"]:
        return
    least = limits["requests"] * len(workload.step)
    weights = _WEIGHTS.format(least=least)
    price = price_of_spans(workload, _PRICE.format(weights=weights), limits["saved"])
    if not price.value_ns:
        return
    module = largest(workload, "step_primitives", "module", _INTO_WEIGHTS, "dur_ns")
    share = percent(price.cost_share)
    yield Finding(
        rule="weights_reordered_every_call",
        title=f"{share} of a request brings the same weights into oneDNN's layout again",
        price=price,
        where=Where(module=module),
        remedies=REMEDIES,
        evidence=(workload.evidence(f"{weights} ORDER BY total_ns DESC LIMIT 10"),),
    )

"""Attention is computed in single operators: a product, a softmax, a product.

**What it looks for.** Modules with a softmax between products of batches of matrices. The price is
the time of all that they do beside products.

**Why it matters.** The matrix of weights, of the square of the sequence's length, is written and
read again by each operator. The fused operator holds a block of it in the caches.

**What to do.** `torch.nn.functional.scaled_dot_product_attention`.

**When it is wrong.** Where the weights themselves are needed, or are changed in a way that the
fused operator does not know. With short sequences there is little to save.

Source: Dao et al., FlashAttention, 2022; PyTorch's documentation of the fused operator.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("steps", "operators", "modules")
THRESHOLDS = (
    Threshold("products", 2.0, "products a softmax", "attention has one before and one after it"),
)

REMEDIES = (Remedy("call torch.nn.functional.scaled_dot_product_attention instead"),)
_MODULES = """
    SELECT module FROM operator_totals WHERE module <> '' AND coalesce(phase, '') <> 'backward'
    GROUP BY module
    HAVING sum(count) FILTER (name = 'aten::_softmax') > 0 AND
        sum(count) FILTER (name = 'aten::bmm')
            >= {products} * sum(count) FILTER (name = 'aten::_softmax')"""
_BESIDE = "module IN ({modules}) AND name NOT IN ('aten::bmm', 'aten::mm', 'aten::addmm')"
_PRICE = "SELECT step, sum(self_ns) AS ns FROM step_spans WHERE {beside} GROUP BY step"
_EVIDENCE = """
    SELECT module, phase, name, sum(count)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns
    FROM operator_totals WHERE module IN ({modules})
    GROUP BY ALL ORDER BY self_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """What attention does beside its products."""
    modules = _MODULES.format(products=limits["products"])
    beside = _BESIDE.format(modules=modules)
    if not workload.rows(modules):
        return
    price = price_of_spans(workload, _PRICE.format(beside=beside))
    module = largest(workload, "operator_totals", "module", beside, "self_ns")
    share = percent(price.cost_share)
    yield Finding(
        rule="unfused_attention",
        title=f"attention in single operators takes {share} of a step beside products",
        price=price,
        where=Where(module=module, operator="aten::_softmax"),
        remedies=REMEDIES,
        evidence=(workload.evidence(_EVIDENCE.format(modules=modules)),),
        certainty=LIKELY,
    )

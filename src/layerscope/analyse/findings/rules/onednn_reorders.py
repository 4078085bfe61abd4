"""Tensors of oneDNN become ordinary ones between one layer and the next, and go back.

**What it looks for.** In a forward pass a reorder out of oneDNN's own layout in a conversion to an
ordinary tensor, after which the next reorder of that shape goes back into it. The price is all
reorders of these shapes in the step, those of conversions with the whole operator that converts.

**Why it matters.** A reorder reads and writes the whole tensor and computes nothing.

**What to do.** Leave out the `to_dense()` and `to_mkldnn()` in between: convert the input once and
the answer once.

**When it is wrong.** Where the layer in between knows ordinary tensors only. The reorders that a
convolution of ordinary tensors makes by itself are no finding: `channels_last` removes them, but
its own code may take as much longer. Whether it does is measured by `--prove N --with COMMAND`.

Source: oneDNN's guide on memory formats; PyTorch's documentation of `torch.utils.mkldnn`.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "primitives")
THRESHOLDS = (
    Threshold("returns", 2.0, "a step", "one tensor that goes there and back is no pattern yet"),
)
REMEDIES = (
    Remedy("keep oneDNN's tensors from layer to layer: no to_dense() and to_mkldnn() in between"),
)
# Activations: of weights the first dimension is blocked.
_ACTIVATIONS = """primitive_kind = 'reorder' AND kind = 'execute' AND share_of IS NULL
        AND is_critical AND NOT regexp_matches(formats, '(^|> )A')"""
# A layout of oneDNN's own has dimensions in blocks, which are capital letters.
_RETURNS = f"""
    SELECT step, problem FROM (
        SELECT step, problem, formats,
            lag(formats) OVER before AS left_by, lag(operator) OVER before AS left_in
        FROM step_primitives
        WHERE {_ACTIVATIONS} AND regexp_matches(formats, '[A-H]')
            AND coalesce(operator, '') NOT LIKE '%backward%'
        WINDOW before AS (PARTITION BY step, problem ORDER BY start_ns))
    WHERE left_in LIKE '%dense%' AND regexp_matches(left_by, '-> [a-h]+$')
        AND regexp_matches(formats, '^[a-h]+ -> ')"""
_COUNT = f"SELECT count(*) AS n FROM ({_RETURNS})"
_PRICE = f"""
    SELECT step, sum(CASE WHEN regexp_matches(operator, 'dense|to_mkldnn')
        THEN operator_ns ELSE dur_ns END) AS ns
    FROM step_primitives SEMI JOIN ({_RETURNS}) USING (step, problem)
    WHERE {_ACTIVATIONS} GROUP BY step"""
EVIDENCE = f"""
    SELECT operator, module, problem, formats, count(*) AS reorders, sum(dur_ns)::BIGINT AS total_ns
    FROM step_primitives WHERE {_ACTIVATIONS}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The reorders of tensors that go there and back."""
    returns = float(workload.rows(_COUNT)[0]["n"]) / len(workload.step)
    if returns < limits["returns"]:
        return
    price = price_of_spans(workload, _PRICE)
    module = largest(workload, "step_primitives", "module", _ACTIVATIONS, "dur_ns")
    yield Finding(
        rule="onednn_reorders",
        title=f"{returns:,.0f} tensors of a step leave oneDNN's layout and go back into it",
        price=price,
        where=Where(module=module),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE),),
    )

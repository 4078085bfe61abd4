"""A loop reads a tensor number by number.

**What it looks for.** Operators that take one element out of a tensor, many times in a step,
outside of the data loader. The price is their time, and that of Python between one and the next.

**Why it matters.** Each number costs an operator and its way through the dispatcher, some µs; an
operator on the whole tensor takes a few ns a number.

**What to do.** Use an operator on the whole tensor, or `tensor.tolist()` once before the loop.

**When it is wrong.** Where each number decides what is computed next.

Source: the anti-pattern of torch.profiler about indexing in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.repeated import (
    OUTSIDE,
    line_of_repeated,
    price_of_repeated,
)
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "operators")
THRESHOLDS = (
    Threshold(
        "calls",
        100.0,
        "elements in a step",
        "fewer cost less than a tenth of a millisecond; networks take single rows now and then",
    ),
)
REMEDIES = (Remedy("compute on the whole tensor, or take its numbers out once with tolist()"),)
# Operators that take one element of a tensor out of it.
ELEMENTS = "'aten::select', 'aten::as_strided', 'aten::item', 'aten::_local_scalar_dense'"
# What a network's own layers do not call.
_CALLED = "'aten::select', 'aten::item', 'aten::_local_scalar_dense'"
# The backward pass makes views by itself.
_CONDITION = f"name IN ({ELEMENTS}) AND {OUTSIDE} AND phase <> 'backward'"
_SPANS = f"SELECT name, self_ns, count FROM operator_totals WHERE {_CONDITION}"
_COUNT = f"SELECT coalesce(sum(count), 0) AS n FROM ({_SPANS}) WHERE name = 'aten::select'"
EVIDENCE = f"""
    SELECT name, sum(count)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns
    FROM ({_SPANS}) GROUP BY ALL ORDER BY self_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time of operators that take single elements, and of Python between them."""
    calls = float(workload.rows(_COUNT)[0]["n"]) / len(workload.step)
    if calls < limits["calls"]:
        return
    yield Finding(
        rule="tensor_indexed_in_loop",
        title=f"a loop takes {calls:,.0f} single elements out of tensors in a step",
        price=price_of_repeated(workload, _CONDITION),
        where=Where(line=line_of_repeated(workload, _CALLED)),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE),),
    )

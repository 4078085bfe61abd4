"""oneDNN has no fast code for a primitive and runs its reference code.

**What it looks for.** Primitives whose implementation is called `ref` or `simple`, which is code in
plain C++ for every case that the fast ones leave out. The price is their whole time: how fast
another way is, nobody knows before it is measured.

**Why it matters.** Reference code can be slower by a factor of ten and more.

**What to do.** Change what the fast code does not take: numbers of channels that are no multiple of
16, odd strides, a data type that the CPU lacks. Or let the framework compute it: without
`to_mkldnn()`, or with `torch.backends.mkldnn.flags(enabled=False)`.

**When it is wrong.** oneDNN calls its recurrent networks `ref` in training although they are made
of fast products of matrices: they are left out here.

Source: oneDNN's documentation of its verbose mode, names of implementations.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("primitives",)
THRESHOLDS = (Threshold("saved", 0.5, "of their time, at least", "fast code takes time too"),)
REMEDIES = (
    Remedy("use shapes and types that the library has fast code for, or the framework's own code"),
)

_REFERENCE = """kind = 'execute' AND share_of IS NULL AND is_critical
        AND primitive_kind NOT IN ('rnn', 'reorder', 'sum')
        AND regexp_matches(implementation, '^(ref|simple)|gemm:ref|[+]ref')"""
_PRICE = f"SELECT step, sum(dur_ns) AS ns FROM step_primitives WHERE {_REFERENCE} GROUP BY step"
EVIDENCE = f"""
    SELECT primitive_kind, implementation, dtype, formats, problem, operator, module,
        count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns
    FROM step_primitives WHERE {_REFERENCE}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in reference code."""
    price = price_of_spans(workload, _PRICE, limits["saved"])
    if not price.value_ns:
        return
    names = ("operator", "module")
    place = {
        name: largest(workload, "step_primitives", name, _REFERENCE, "dur_ns") for name in names
    }
    yield Finding(
        rule="reference_primitives",
        title=f"{percent(price.cost_share)} of a {workload.per} runs the reference code of oneDNN",
        price=price,
        where=Where(operator=place["operator"], module=place["module"]),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE),),
        certainty=LIKELY,
    )

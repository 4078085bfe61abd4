"""Tensors are made of Python's lists, one number after the other.

**What it looks for.** Samples in the code of PyTorch that walks over a list, or a list of arrays,
to store its numbers in a tensor (`torch.tensor`), on the thread that makes the steps.

**Why it matters.** Each number is an object of Python, made and read by itself in 0.1 µs, in
which a copy of an array moves hundreds. A list of arrays is no faster: objects are made of it.

**What to do.** Keep numbers in arrays or tensors from the start. Of a list of arrays make one array
first: `torch.from_numpy(numpy.stack(arrays))`; of a list of tensors `torch.stack(tensors)`.

**When it is wrong.** Numbers that only exist as Python's objects, such as parsed text, have to be
read once: do that before the loop, or in the workers of a loader.

Source: PyTorch's warning that tensors of lists of arrays are made extremely slowly.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("steps", "samples")
THRESHOLDS: tuple[Threshold, ...] = ()
REMEDIES = (
    Remedy("make one array of it first: torch.from_numpy(numpy.stack(arrays))"),
    Remedy("keep the numbers in arrays or tensors, not in lists"),
)
STORING = """
    is_critical AND (kind = 'cpu' OR state = 'preempted') AND stack IN (
        SELECT stack FROM stack_frames JOIN frames USING (frame)
        WHERE layer = 'native' AND regexp_matches(name, '^torch::utils::.*recursive_store$'))"""
_PRICE = f"""
    SELECT step, sum(weight_ns)::BIGINT AS ns, count(*) FILTER (kind = 'cpu') AS samples
    FROM step_samples WHERE {STORING} GROUP BY step"""
EVIDENCE = f"""
    SELECT line, function, kind, sum(weight_ns)::BIGINT AS total_ns, count(*) AS samples,
        count(DISTINCT step) AS steps
    FROM step_samples WHERE {STORING}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in which numbers of lists are stored."""
    price = price_of_spans(workload, _PRICE)
    if not price.value_ns:
        return
    share = f"{percent(price.share)} of a {workload.per}"
    yield Finding(
        rule="tensors_made_of_lists",
        title=f"{share} makes tensors of Python's lists, number by number",
        price=price,
        where=place_of_samples(workload, STORING),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE),),
    )

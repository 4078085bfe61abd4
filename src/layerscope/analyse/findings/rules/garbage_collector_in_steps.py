"""Python's garbage collector walks over all objects in steps.

**What it looks for.** Samples in Python's garbage collector, on the thread that makes the steps. It
tells calls of `gc.collect()` from collections that Python begins by itself.

**Why it matters.** Nearly all objects are freed without it, at once. A full collection looks at
every object that can hold others: beside the modules of PyTorch 0.1 s, whatever there is to free.

**What to do.** Leave `gc.collect()` out of the loop, or call it once an epoch. If Python begins the
collections: `gc.freeze()` when all is set up, so that they pass over what stays, or a higher
`gc.set_threshold`.

**When it is wrong.** Where steps make cycles of large tensors, memory grows until the next
collection. A Python without names of its own functions does not show where it collects: then the
rule finds nothing.

Source: Python's documentation of `gc`.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import CERTAIN, LIKELY, Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("steps", "samples")
THRESHOLDS = (
    Threshold(
        "called",
        0.5,
        "of the time",
        "the program calls the collector itself, and that line is to be changed; else Python does",
    ),
)
LESS_OFTEN = Remedy("take gc.collect() out of the loop, or call it once an epoch")
FREEZE = Remedy("call gc.freeze() when all is set up: collections pass over what stays")
_STACKS = """
    SELECT stack FROM stack_frames JOIN frames USING (frame)
    WHERE layer = 'native' AND regexp_matches(name, '{names}')"""
# CPython 3.8 to 3.14: what any collection goes through, and the function that programs call.
_COLLECTS = _STACKS.format(names="^(gc_collect|_?PyGC_Collect|_Py_RunGC)")
_IS_CALLED = f"stack IN ({_STACKS.format(names='^(gc_collect(_impl)?|PyGC_Collect)$')})"
COLLECTING = f"""
    is_critical AND (kind = 'cpu' OR state = 'preempted') AND stack IN ({_COLLECTS})"""
_PRICE = f"""
    SELECT step, sum(weight_ns)::BIGINT AS ns, count(*) FILTER (kind = 'cpu') AS samples
    FROM step_samples WHERE {COLLECTING} GROUP BY step"""
_CALLED = f"""
    SELECT coalesce(sum(weight_ns) FILTER ({_IS_CALLED}), 0) / greatest(sum(weight_ns), 1) AS called
    FROM step_samples WHERE {COLLECTING}"""
EVIDENCE = f"""
    SELECT line, function, kind, {_IS_CALLED} AS is_called, sum(weight_ns)::BIGINT AS total_ns,
        count(*) AS samples, count(DISTINCT step) AS steps
    FROM step_samples WHERE {COLLECTING}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The collector's time in steps."""
    price = price_of_spans(workload, _PRICE)
    if not price.value_ns:
        return
    called = float(workload.rows(_CALLED)[0]["called"] or 0)
    is_called = called >= limits["called"]
    share = percent(price.share)
    whose = "that the program calls" if is_called else "that Python begins by itself"
    yield Finding(
        rule="garbage_collector_in_steps",
        title=f"{share} of a step is garbage collection {whose}",
        price=price,
        where=place_of_samples(workload, COLLECTING),
        remedies=(LESS_OFTEN,) if is_called else (FREEZE,),
        evidence=(workload.evidence(EVIDENCE),),
        certainty=CERTAIN if is_called else LIKELY,
    )

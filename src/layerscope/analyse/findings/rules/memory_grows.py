"""Resident memory grows from step to step, and first touches of new memory take time.

**What it looks for.** The memory of the process in the first, the middle and the last third of the
measured steps: it grows by the same amount from each to the next, and most page faults are first
touches of what it grows by. The line is the one with most page faults.

**Why it matters.** Memory that is used for the first time costs a page fault for each 4 KiB, where
memory that was given back is used again for nothing. At last the program is killed for it.

**What to do.** Look at what the named line makes and who holds it: often a list of losses that
still have all that they were computed from. Keep numbers (`loss.item()`) or `detach()` them.

**When it is wrong.** A cache or a buffer that is filled on purpose grows too, until it is full. The
price is the time of the page faults, which may be far below what a leak costs in the end: where it
is less than 2 % of a step the growth is listed as looked at, and `layerscope summary` says it.

Source: the thresholds are those of the summary's line about memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.rules.page_fault_time import EVIDENCE, FAULTS, PRICE
from layerscope.analyse.findings.workload import Workload
from layerscope.analyse.resources import GROWTH, GROWTH_BYTES
from layerscope.model.units import percent

NEEDS = ("steps", "samples", "counters")
THRESHOLDS = (
    Threshold("bytes", GROWTH_BYTES, "bytes", "what an allocator may take without being a leak"),
    Threshold("share", GROWTH, "of the memory", "what differs between two runs of one program"),
    Threshold(
        "evenness",
        0.3,
        "of the growth",
        "the middle third may be so far from halfway: a single step up is no leak",
    ),
    Threshold(
        "explained",
        0.6,
        "of the page faults",
        "are first touches of what it grows by: else most of their time is an allocator's",
    ),
)
REMEDIES = (
    Remedy("keep numbers instead of tensors with all that they were computed from: loss.item()"),
)

_THIRDS = """
    WITH readings AS (
        SELECT at_ns, value FROM counters JOIN tracks USING (track)
        WHERE counters.name = 'rss_bytes' AND tracks.process = {process}
            AND at_ns BETWEEN (SELECT min(start_ns) FROM measured_steps)
                AND (SELECT max(start_ns + dur_ns) FROM measured_steps)),
    thirds AS (SELECT value, ntile(3) OVER (ORDER BY at_ns) AS third FROM readings)
    SELECT third, median(value) AS rss_bytes, count(*) AS readings
    FROM thirds GROUP BY third ORDER BY third"""
_PAGE_BYTES = 4096


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """Memory that grows evenly over the steps."""
    question = _THIRDS.format(process=workload.process)
    thirds = [float(row["rss_bytes"]) for row in workload.rows(question)]
    if not _grows(thirds, limits):
        return
    # The medians of the first and the last third are two thirds of the steps apart.
    megabytes = (thirds[2] - thirds[0]) * 1.5 / len(workload.step) / 1e6
    if megabytes < limits["explained"] * _megabytes_touched(workload):
        return
    price = workload.price(PRICE)
    share = percent(price.cost_share)
    yield Finding(
        rule="memory_grows",
        title=f"memory grows by {megabytes:,.1f} MB a step, which takes {share} of it",
        price=price,
        where=place_of_samples(workload, "is_critical AND kind = 'fault'", "count"),
        remedies=REMEDIES,
        evidence=(workload.evidence(question), workload.evidence(EVIDENCE)),
        certainty=LIKELY,
    )


def _megabytes_touched(workload: Workload) -> float:
    """How much memory the page faults of a step bring, as far as samples tell."""
    faults = float(workload.rows(FAULTS)[0]["n"])
    pages = faults / len(workload.step)
    return pages * _PAGE_BYTES / 1e6


def _grows(thirds: list[float], limits: Limits) -> bool:
    """Whether the medians of the thirds go up evenly."""
    if len(thirds) < 3:
        return False
    first, middle, last = thirds
    growth = last - first
    most_uneven = limits["evenness"] * growth
    if growth < limits["bytes"]:
        return False
    if growth < limits["share"] * first:
        return False
    halfway = (first + last) / 2
    uneven = abs(middle - halfway)
    return uneven <= most_uneven

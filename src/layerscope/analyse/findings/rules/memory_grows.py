"""Resident memory grows from step to step, and first touches of new memory take time.

**What it looks for.** The memory of the process in the first, the middle and the last third of the
measured steps: it grows by the same amount from each to the next, and most page faults are first
touches of what it grows by. The line is the one with most page faults, or, where allocations were
recorded, the one that allocates most of what is still there when the steps are over.

**Why it matters.** Memory that is used for the first time costs a page fault for each 4 KiB, where
memory that was given back is used again for nothing. At last the program is killed for it.

**What to do.** Look at what the named line makes and who holds it: often a list of losses that
still have all that they were computed from. Keep numbers (`loss.item()`) or `detach()` them. With
`layerscope run --layers=+memory` the line is the one whose tensors were not released when the
last step ended, and `layerscope table memory --by line` has all of them.

**When it is wrong.** A cache or a buffer that is filled on purpose grows too, until it is full, and
so does a queue that is longer than the recording. The price is the time of the page faults, which
may be far below what a leak costs in the end: where it is less than 2 % of a step the growth is
listed as looked at, and `layerscope summary` says it.

Source: the thresholds are those of the summary's line about memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import (
    LIKELY,
    Evidence,
    Finding,
    Limits,
    Remedy,
    Threshold,
    Where,
)
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
# The last step is left out: what it allocated may be released in the next one.
_LEFT = """
    WITH judged AS (
        SELECT min(start_ns) AS from_ns, max(start_ns) AS until_ns,
            max(start_ns + dur_ns) AS last_ns
        FROM measured_steps)
    SELECT line, operator, count(*)::BIGINT AS blocks, sum(bytes)::BIGINT AS bytes
    FROM allocations JOIN tracks USING (track), judged
    WHERE tracks.process = {process} AND at_ns >= from_ns AND at_ns < until_ns AND NOT is_lost
        AND (dur_ns IS NULL OR at_ns + dur_ns > last_ns)
    GROUP BY ALL ORDER BY bytes DESC, line LIMIT 5"""
# A line that allocates this part of the growth explains it.
_MOST_OF_IT = 0.5
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
    left, where = _allocated(workload, megabytes)
    if where is None:
        where = place_of_samples(workload, "is_critical AND kind = 'fault'", "count")
    yield Finding(
        rule="memory_grows",
        title=f"memory grows by {megabytes:,.1f} MB a step, which takes {share} of it",
        price=price,
        where=where,
        remedies=REMEDIES,
        evidence=(workload.evidence(question), *left, workload.evidence(EVIDENCE)),
        certainty=LIKELY,
    )


def _allocated(workload: Workload, megabytes: float) -> tuple[list[Evidence], Where | None]:
    """What allocations say, where they were recorded: the lines of what is still there, and the one
    that explains the growth.
    """
    if not workload.reader.has("allocations"):
        return [], None
    question = _LEFT.format(process=workload.process)
    rows = workload.rows(question)
    where = None
    if rows and rows[0]["line"]:
        per_step = rows[0]["bytes"] / max(len(workload.step) - 1, 1)
        if per_step >= _MOST_OF_IT * megabytes * 1e6:
            where = Where(line=rows[0]["line"], operator=rows[0]["operator"])
    return [workload.evidence(question)], where


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

"""Waits of the threads that make the steps, outside of the data loader: for what, where, and who
ended them.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

THRESHOLDS = (Threshold("waits", 5.0, "waits", "fewer, in all measured steps, may be chance"),)
# Waits in the loader are of `loader_wait` and `loader_reads_files`. Of waits that nobody saw the
# inside of (`unknown`) nothing is said.
WAITS = """
    is_critical AND kind = 'offcpu' AND NOT idle AND phase IS DISTINCT FROM 'loading'
    AND {condition}"""
_COUNT = "SELECT count(*) AS n FROM step_samples WHERE {waits}"
_PRICE = """
    SELECT step, sum(weight_ns)::BIGINT AS ns FROM step_samples
    WHERE {waits} GROUP BY step"""
# What the thread that ended a wait did last before its end is what was waited for.
EVIDENCE = """
    SELECT waits.line, waits.operator, tracks.name AS ended_by, theirs.line AS line_of_that,
        sum(waits.weight_ns)::BIGINT AS total_ns, count(*) AS waits
    FROM (SELECT * FROM step_samples WHERE {waits}) waits
        LEFT JOIN tracks ON tracks.track = waits.waker
        ASOF LEFT JOIN (SELECT track, at_ns, line FROM step_samples WHERE line <> '') theirs
            ON waits.waker = theirs.track AND waits.at_ns + waits.weight_ns >= theirs.at_ns
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def waits_for(
    condition: str,
    rule: str,
    title: str,
    remedies: tuple[Remedy, ...],
    workload: Workload,
    limits: Limits,
) -> Iterator[Finding]:
    """The finding of `rule`: waits of `condition`. `title` has a place for the share and for what a
    price is of.
    """
    waits = WAITS.format(condition=condition)
    count = workload.rows(_COUNT.format(waits=waits))[0]["n"]
    if count < limits["waits"]:
        return
    price = workload.price(_PRICE.format(waits=waits))
    yield Finding(
        rule=rule,
        title=title.format(share=f"{percent(price.cost_share)}", per=workload.per),
        price=price,
        where=place_of_samples(workload, waits),
        remedies=remedies,
        evidence=(workload.evidence(EVIDENCE.format(waits=waits)),),
    )

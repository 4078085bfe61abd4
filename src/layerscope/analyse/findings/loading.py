"""What the thread that makes the steps does in its data loader: computes, reads files, or waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.model.units import percent

if TYPE_CHECKING:
    from layerscope.analyse.findings.workload import Workload

THRESHOLDS = (
    Threshold(
        "share", 0.05, "of a step", "below it loading is not what makes a step slow (Kineto's 5 %)"
    ),
)
COMPUTES, READS, WAITS = "computes", "reads", "waits"
# Which samples of the critical thread belong to each.
_CONDITIONS = {
    COMPUTES: "kind = 'cpu'",
    READS: "kind = 'offcpu' AND state IN ('file', 'page_fault')",
    WAITS: "kind = 'offcpu' AND state NOT IN ('file', 'page_fault', 'preempted', 'unknown')",
}
_IN_LOADER = "is_critical AND phase = 'loading'"
_SPLIT = f"""
    SELECT {{columns}}
    FROM step_samples WHERE {_IN_LOADER}"""
_EVIDENCE = f"""
    SELECT CASE WHEN kind = 'cpu' THEN 'on a CPU' ELSE state END AS doing, line,
        sum(weight_ns)::BIGINT AS total_ns, count(*) AS samples
    FROM step_samples WHERE {_IN_LOADER}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""
_PRICE = "SELECT step, load_ns AS ns FROM measured_steps"
# On a busy machine: without the time in which others had the CPU.
_PRICE_WHEN_BUSY = f"""
    SELECT step, sum(weight_ns)::BIGINT AS ns
    FROM step_samples WHERE {_IN_LOADER} AND state IS DISTINCT FROM 'preempted' GROUP BY step"""


def loading_that(
    cause: str,
    rule: str,
    title: str,
    remedies: tuple[Remedy, ...],
    workload: Workload,
    limits: Limits,
) -> Iterator[Finding]:
    """The finding of `rule`, if the loader mostly does `cause`. `title` has a place for the
    share.
    """
    if main_cause(workload) != cause:
        return
    price = workload.price(_PRICE_WHEN_BUSY if workload.is_busy else _PRICE)
    condition = f"{_IN_LOADER} AND {_CONDITIONS[cause]}"
    yield Finding(
        rule=rule,
        title=title.format(share=percent(price.cost_share)),
        price=price,
        where=replace(place_of_samples(workload, condition), operator="", module=""),
        remedies=remedies,
        evidence=(workload.evidence(_EVIDENCE),),
        is_below=price.cost_share < limits["share"],
    )


def main_cause(workload: Workload) -> str:
    """What the loader does most of its time; empty where no sample saw it."""
    sums = ", ".join(
        f"coalesce(sum(weight_ns) FILTER ({condition}), 0)::BIGINT AS {cause}"
        for cause, condition in _CONDITIONS.items()
    )
    question = _SPLIT.format(columns=sums)
    row = workload.rows(question)[0]
    most = max(row, key=lambda cause: int(row[cause]))
    if not row[most]:
        return ""
    return most

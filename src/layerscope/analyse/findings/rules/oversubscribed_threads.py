"""More threads of OpenMP work at once than there are CPUs for them.

**What it looks for.** The team of the thread that makes the steps: how many of it, on average, ran
or could run and had no CPU. More of them than granted CPUs is too many. Threads that sleep do not
count, and other programs cannot raise the number above that of the team.

**Why it matters.** At the end of every parallel operator all threads wait for the last one, which
has no CPU while others run. Every thread more has to be woken for each operator.

**What to do.** Let a team have as many threads as there are CPUs: `OMP_NUM_THREADS`, or
`torch.set_num_threads` where the program sets it itself.

**When it is wrong.** The price is the time that the thread waits for its team, at most what is left
of a step if all CPUs had worked all the time. How much of it goes with fewer threads depends on
how evenly the work is divided among them.

Source: VTune's oversubscription; the kernel's `schedstat`.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import ENVIRONMENT, Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.team import IN_OPENMP, RUNNABLE, runnable_threads
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "samples")
THRESHOLDS = (
    Threshold(
        "runnable", 1.25, "threads for a CPU", "closer to one it may be threads that just end"
    ),
)
# What the thread does for its team instead of work.
_LOST = f"""
    is_critical AND ((kind = 'offcpu' AND state IN ('barrier', 'preempted'))
        OR (kind = 'cpu' AND {IN_OPENMP}))"""
# The part of what is lost that goes if all CPUs work all the time.
_WORK = f"""
    WITH sums AS (
        SELECT coalesce(sum(weight_ns) FILTER (kind = 'cpu' AND NOT {IN_OPENMP}), 0) AS work_ns,
            coalesce(sum(weight_ns) FILTER ({_LOST}), 0) AS lost_ns
        FROM step_samples)
    SELECT work_ns::BIGINT AS work_ns, lost_ns::BIGINT AS lost_ns, greatest(0, least(1,
        ((SELECT sum(dur_ns) FROM measured_steps) - work_ns / {{cpus}}) / greatest(1, lost_ns)
        ))::DOUBLE AS removable_part
    FROM sums"""
_PRICE = f"""
    SELECT step, sum(weight_ns) * {{part}} AS ns FROM step_samples WHERE {_LOST} GROUP BY step"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time that a step waits for a team that is too large."""
    cpus = workload.granted_cpus
    team = runnable_threads(workload)
    least = limits["runnable"] * cpus
    if team.number < least:
        return
    work = workload.evidence(_WORK.format(cpus=cpus))
    part = work.rows["removable_part"][0]
    price = workload.price(_PRICE.format(part=part))
    yield Finding(
        rule="oversubscribed_threads",
        title=f"{team.threads} threads of OpenMP work on {cpus:g} CPUs",
        price=price,
        where=place_of_samples(workload, _LOST),
        remedies=_remedies(cpus),
        evidence=(workload.evidence(RUNNABLE), work),
        notes=(f"{team.number:.1f} of them could run on average",),
    )


def _remedies(cpus: float) -> tuple[Remedy, ...]:
    threads = max(1, int(cpus))
    variables = {"OMP_NUM_THREADS": str(threads)}
    return (
        Remedy("as many threads as CPUs", ENVIRONMENT, variables),
        Remedy(f"torch.set_num_threads({threads}), where the program sets it itself"),
    )

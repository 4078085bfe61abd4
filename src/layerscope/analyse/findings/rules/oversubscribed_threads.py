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
_WORK = f"""
    SELECT coalesce(sum(weight_ns) FILTER (kind = 'cpu' AND NOT {IN_OPENMP}), 0)::DOUBLE AS work_ns,
        coalesce(sum(weight_ns) FILTER ({_LOST}), 0)::DOUBLE AS lost_ns
    FROM step_samples"""
_PRICE = f"""
    SELECT step, sum(weight_ns) * {{part}} AS ns FROM step_samples WHERE {_LOST} GROUP BY step"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time that a step waits for a team that is too large."""
    cpus = workload.granted_cpus
    team = runnable_threads(workload)
    if team.threads <= cpus or team.number < limits["runnable"] * cpus:
        return
    price = workload.price(_PRICE.format(part=_removable_part(workload)))
    yield Finding(
        rule="oversubscribed_threads",
        title=f"{team.threads} threads of OpenMP work on {cpus:g} CPUs",
        price=price,
        where=place_of_samples(workload, _LOST),
        remedies=_remedies(max(1, int(cpus))),
        evidence=(workload.evidence(RUNNABLE), workload.evidence(_WORK)),
        notes=(f"{team.number:.1f} of them could run on average",),
    )


def _removable_part(workload: Workload) -> float:
    """The part of what is lost that goes if all CPUs work all the time."""
    row = workload.rows(_WORK)[0]
    least_ns = float(row["work_ns"]) / workload.granted_cpus
    most_saved_ns = max(0.0, float(workload.dur_ns.sum()) - least_ns)
    return min(1.0, most_saved_ns / max(float(row["lost_ns"]), 1.0))


def _remedies(cpus: int) -> tuple[Remedy, ...]:
    variables = {"OMP_NUM_THREADS": str(cpus)}
    return (
        Remedy("as many threads as CPUs", ENVIRONMENT, variables),
        Remedy(f"torch.set_num_threads({cpus}), where the program sets it itself"),
    )

"""Threads of OpenMP wait on their CPUs for others of their team, while there are threads that have
no CPU.

**What it looks for.** CPU time of the thread that makes the steps in OpenMP's own code: it waits
there for the rest of its team. It is a finding only where threads of the program, in these steps,
had to wait for a CPU as well: what waits holds up what it waits for.

**Why it matters.** On CPUs that are shared a team that spins becomes slower by far more than its
share: the thread that all others wait for gets a CPU only when the kernel takes one from those that
wait for it.

**What to do.** Have threads sleep while they wait: `OMP_WAIT_POLICY=passive`. Fewer threads than
CPUs help as well.

**When it is wrong.** Where every thread has a CPU of its own, waiting on it is faster than
sleeping: then this rule is silent. Code in OpenMP's runtime without names is taken for waiting,
which nearly all of it is.

Source: `OMP_WAIT_POLICY` and `GOMP_SPINCOUNT` in the manual of libgomp.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import ENVIRONMENT, Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.team import IN_OPENMP
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("samples",)
THRESHOLDS = (
    Threshold(
        "without_cpu",
        0.1,
        "of the time of all threads",
        "is spent waiting for a CPU; below it each thread has one, and spinning costs nothing",
    ),
    Threshold(
        "spinning",
        0.25,
        "of the thread's CPU time",
        "less is what threads need to begin to sleep, or to wake others",
    ),
)
REMEDIES = (
    Remedy(
        "have OpenMP's threads sleep while they wait", ENVIRONMENT, {"OMP_WAIT_POLICY": "passive"}
    ),
)

SPINNING = f"is_critical AND (kind = 'cpu' OR state = 'preempted') AND {IN_OPENMP}"
_SHARE = f"""
    SELECT coalesce(sum(weight_ns) FILTER ({IN_OPENMP}), 0)
        / greatest(sum(weight_ns), 1) AS spinning
    FROM step_samples WHERE is_critical AND kind = 'cpu'"""
_PRICE = f"""
    SELECT step, sum(weight_ns)::BIGINT AS ns FROM step_samples WHERE {SPINNING} GROUP BY step"""
WITHOUT_CPU = """
    SELECT coalesce(sum(weight_ns) FILTER (state = 'preempted'), 0)
        / greatest(sum(weight_ns) FILTER (kind = 'cpu' OR state = 'preempted'), 1) AS without_cpu
    FROM step_samples WHERE NOT idle"""
EVIDENCE = f"""
    SELECT operator, symbol, kind, sum(weight_ns)::BIGINT AS total_ns, count(*) AS samples
    FROM step_samples WHERE {SPINNING}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in which the thread of the steps spins."""
    without_cpu = float(workload.rows(WITHOUT_CPU)[0]["without_cpu"] or 0)
    if without_cpu < limits["without_cpu"]:
        return
    spinning = float(workload.rows(_SHARE)[0]["spinning"] or 0)
    if spinning < limits["spinning"]:
        return
    price = workload.price(_PRICE)
    share = f"{percent(price.cost_share)} of a {workload.per}"
    yield Finding(
        rule="openmp_spin",
        title=f"{share} waits on its CPU for OpenMP's other threads",
        price=price,
        where=place_of_samples(workload, SPINNING),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE), workload.evidence(WITHOUT_CPU)),
        notes=(f"threads had no CPU for {percent(without_cpu)} of their time",),
    )

"""Whether other programs took the CPUs that this one could have used. Then its times say more about
them than about it, and prices count CPU time only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.model.units import percent

if TYPE_CHECKING:
    from layerscope.analyse.findings.workload import Workload

# The critical threads waited for a CPU for more than this part of the steps.
BUSY_SHARE = 0.2
# A program that uses nearly all that it may use waits for its own threads. Beside a recording there
# are a few percent less than it may.
OWN_SHARE = 0.85

PREEMPTED = """
    SELECT coalesce(sum(weight_ns) FILTER (is_critical AND state = 'preempted'), 0)
            / greatest(sum(weight_ns) FILTER (is_critical), 1) AS preempted_share
    FROM step_samples WHERE NOT idle"""
# Of all processes that do a part of the program's work, such as workers that load.
OWN = """
    SELECT (coalesce(sum(weight_ns), 0) / (SELECT sum(dur_ns) FROM measured_steps))::DOUBLE AS cpus
    FROM samples
    WHERE kind = 'cpu' AND track IN (SELECT track FROM tracks
            WHERE process = {process}
                OR process IN (SELECT process FROM totals WHERE layer = 'operators'))
        AND {during}"""
_IN_STEPS = """
    at_ns BETWEEN (SELECT min(start_ns) FROM measured_steps)
        AND (SELECT max(start_ns + dur_ns) FROM measured_steps)"""


class Contention(Struct, frozen=True):
    """How much of their time the critical threads could run and had no CPU, and how many CPUs the
    processes of the program used meanwhile, of those that it was granted.
    """

    preempted_share: float
    busy_cpus: float
    granted_cpus: float

    @property
    def is_busy(self) -> bool:
        """Whether others had the CPUs, and not the program's own threads."""
        own = self.busy_cpus / self.granted_cpus
        is_preempted = self.preempted_share > BUSY_SHARE
        return is_preempted and own < OWN_SHARE

    @property
    def sentence(self) -> str:
        """What is said with every finding then."""
        share = percent(self.preempted_share)
        used = f"{self.busy_cpus:.1f} of {self.granted_cpus:g}"
        return (
            f"on a busy machine: for {share} of a step the thread could run and had no CPU, while "
            f"the program used {used}"
        )


def contention(workload: Workload) -> Contention | None:
    """None where no stacks were recorded."""
    if workload.missing(("samples",)):
        return None
    (row,) = workload.rows(PREEMPTED)
    share = float(row["preempted_share"] or 0)
    during = _IN_STEPS if workload.has_steps else "true"
    (own,) = workload.rows(OWN.format(during=during, process=workload.process))
    return Contention(share, float(own["cpus"] or 0), workload.granted_cpus)

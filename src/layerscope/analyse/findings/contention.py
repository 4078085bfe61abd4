"""Whether other programs took the CPUs that this one could have used. Then its times say more about
them than about it, and prices count CPU time only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerscope.model.units import percent

if TYPE_CHECKING:
    from layerscope.analyse.findings.workload import Workload

# The critical threads waited for a CPU for more than this part of the steps.
BUSY_SHARE = 0.2
# A program that uses nearly all that it may use waits for its own threads.
OWN_SHARE = 0.9

PREEMPTED = """
    SELECT coalesce(sum(weight_ns) FILTER (is_critical AND state = 'preempted'), 0)
            / greatest(sum(weight_ns) FILTER (is_critical), 1) AS preempted_share,
        coalesce(sum(weight_ns) FILTER (kind = 'cpu'), 0) AS cpu_ns
    FROM step_samples WHERE NOT idle"""


@dataclass(frozen=True, slots=True)
class Contention:
    """How much of their time the critical threads could run and had no CPU, and how many CPUs the
    process used meanwhile, of those that it was granted.
    """

    preempted_share: float
    busy_cpus: float
    granted_cpus: float

    @property
    def is_busy(self) -> bool:
        """Whether others had the CPUs, and not the program's own threads."""
        own = self.busy_cpus / self.granted_cpus
        return self.preempted_share > BUSY_SHARE and own < OWN_SHARE

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
    whole_ns = float(workload.dur_ns.sum())
    cpu_ns = float(row["cpu_ns"])
    share = float(row["preempted_share"] or 0)
    busy_cpus = cpu_ns / max(whole_ns, 1.0)
    return Contention(share, busy_cpus, workload.granted_cpus)

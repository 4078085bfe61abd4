"""Threads of OpenMP: how many of a team can run at once, and where they wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from layerscope.analyse.findings.workload import Workload

# Where the runtimes of GCC, of LLVM and of Intel wait; without names all that they do themselves.
_OPENMP = (
    r"^(gomp_\w*(barrier|_wait|spin)|do_(spin|wait)$|__kmp_\w*(barrier|wait|yield)|kmp_flag|"
    r"\[lib(gomp|i?omp5?)[-.\]])"
)
IN_OPENMP = f"regexp_matches(symbol, '{_OPENMP}')"
# The threads that OpenMP began, by the function in which they begin.
TEAM = """
    SELECT DISTINCT track FROM step_samples WHERE NOT is_critical AND stack IN (
        SELECT stack FROM stack_frames JOIN frames USING (frame)
        WHERE layer = 'native' AND regexp_matches(name,
            '^(gomp_thread_start|__kmp_launch_(thread|worker)|\\[lib(gomp|i?omp5?)[-.\\]])'))"""
# The kernel counts exactly how long a thread ran and how long it had no CPU, over all of its life;
# after the last step it is taken to do nothing.
RUNNABLE = f"""
    SELECT count(*) + 1 AS threads, coalesce(sum(part), 0) + (
            SELECT coalesce(sum(weight_ns), 0) / (SELECT sum(dur_ns) FROM measured_steps)
            FROM step_samples WHERE is_critical AND (kind = 'cpu' OR state = 'preempted')
        ) AS runnable
    FROM (SELECT least(1, (cpu_ns + delay_ns) / greatest(1, until_ns - start_ns)) AS part
        FROM (SELECT cpu_ns, delay_ns, start_ns,
                (SELECT max(start_ns + dur_ns) FROM measured_steps) AS until_ns
            FROM tracks WHERE track IN ({TEAM})))"""


class Runnable(Struct, frozen=True):
    """The `threads` of a team, and the `number` of them that could run on average: each that runs
    or waits for a CPU. It is never more than there are, however busy the machine is.
    """

    threads: int
    number: float


def runnable_threads(workload: Workload) -> Runnable:
    """Those of the team of the thread that makes the steps, with that thread."""
    row = workload.rows(RUNNABLE)[0]
    threads = row["threads"]
    number = float(row["runnable"])
    return Runnable(threads, number)

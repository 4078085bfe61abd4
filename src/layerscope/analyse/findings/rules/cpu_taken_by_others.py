"""Other programs had the CPUs that this one could have used.

**What it looks for.** The time in which the thread that makes the steps could run and had no CPU,
while all processes of the program that run operators used less than they were granted. Where more
of its own threads could run than it has CPUs, they wait for each other, and this is not said.

**Why it matters.** The step is as much longer as it had to wait for a CPU; and one thread of a team
without a CPU holds up all others of it.

**What to do.** Run it while nothing else runs, or give it CPUs that nothing else uses (`taskset`, a
control group, requests of a container). All other findings are not certain in such a recording:
record again afterwards.

**When it is wrong.** A limit of CPU time (`cpu.max` of a control group) holds a program up in the
same way. Programs that this one began, and that run no operators, are counted as others: the
evidence names them.

Source: `schedstat` of the kernel (Documentation/scheduler/sched-stats.rst).
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.contention import BUSY_SHARE, OWN_SHARE
from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.team import runnable_threads
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("steps", "samples")
THRESHOLDS = (
    Threshold(
        "share",
        BUSY_SHARE,
        "of the thread's time",
        "without a CPU: our own processes and those of a quiet system take a few percent",
    ),
    Threshold(
        "own",
        OWN_SHARE,
        "of the granted CPUs",
        "a program that uses nearly all that it may waits for its own threads",
    ),
)

REMEDIES = (Remedy("run it while nothing else runs, or on CPUs that nothing else uses"),)
_PREEMPTED = "is_critical AND state = 'preempted' AND NOT idle"
_PRICE = f"""
    SELECT step, sum(weight_ns)::BIGINT AS ns FROM step_samples
    WHERE {_PREEMPTED} GROUP BY step"""
EVIDENCE = """
    SELECT processes.pid, processes.argv, tracks.name AS thread,
        coalesce(sum(weight_ns) FILTER (samples.kind = 'cpu'), 0)::BIGINT AS busy_ns,
        coalesce(sum(weight_ns) FILTER (state = 'preempted'), 0)::BIGINT AS without_cpu_ns
    FROM samples JOIN tracks USING (track) JOIN processes USING (process)
    WHERE NOT idle AND at_ns BETWEEN (SELECT min(start_ns) FROM measured_steps)
        AND (SELECT max(start_ns + dur_ns) FROM measured_steps)
    GROUP BY ALL ORDER BY busy_ns + without_cpu_ns DESC LIMIT 10"""

# Read about once a second: of shorter runs there is nothing. Each rank reads its own machine.
MACHINE = """
    SELECT counters.name, (max(value) - min(value))::BIGINT AS grown_ns,
        ((max(value) - min(value)) / nullif(max(at_ns) - min(at_ns), 0))::DOUBLE AS of_the_time
    FROM counters JOIN tracks USING (track) JOIN processes USING (process)
    WHERE tracks.kind = 'counter' AND tracks.name = 'machine'
        AND processes.host = (SELECT host FROM processes WHERE process = {process})
        AND at_ns BETWEEN (SELECT min(start_ns) FROM measured_steps)
        AND (SELECT max(start_ns + dur_ns) FROM measured_steps)
    GROUP BY counters.name, track HAVING count(*) > 1 ORDER BY grown_ns DESC"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time without a CPU that others had."""
    measured = workload.contention
    if measured is None or measured.preempted_share < limits["share"]:
        return
    if runnable_threads(workload).number > workload.granted_cpus:
        return
    own_cpus = measured.busy_cpus
    if own_cpus > limits["own"] * workload.granted_cpus:
        return
    price = workload.price(_PRICE)
    machine = MACHINE.format(process=workload.process)
    yield Finding(
        rule="cpu_taken_by_others",
        title=f"{percent(price.cost_share)} of a step waits for a CPU that another program has",
        price=price,
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE), workload.evidence(machine)),
        notes=(f"this program used {own_cpus:.1f} of {workload.granted_cpus:g} CPUs",),
    )

"""CPUs that the machine has, that may be used, and that a limit of CPU time leaves of those."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import counted, cpu_list

ORDER = 30

# A quota is a quotient of microseconds.
_LESS = 0.995
_MORE_CPUS = "docker update --cpus=N CONTAINER, or in Kubernetes a larger resources.limits.cpu"


def check(seen: Seen) -> Iterator[Check]:
    """One judgement."""
    cpu = seen.machine.cpu
    if not cpu.allowed or not cpu.online:
        yield Check("cpus", "CPUs", UNSEEN, "the kernel does not report how many there are")
        return
    what = (
        f"{counted(len(cpu.online), 'CPU')} online, {len(cpu.allowed)} allowed, "
        f"{cpu.granted:.3g} granted"
    )
    what += f"; offline: {cpu_list(cpu.offline)}" if cpu.offline else ""
    what += (
        f"; of those allowed {cpu_list(_isolated(seen))} are isolated" if _isolated(seen) else ""
    )
    if len(_isolated(seen)) == len(cpu.allowed) > 1:
        yield Check(
            "cpus",
            "CPUs",
            WARNING,
            what,
            "The kernel moves no thread between isolated CPUs: all threads of a program may stay "
            "on one of them.",
            "export OMP_PROC_BIND=close OMP_PLACES=threads",
        )
    elif cpu.granted < _LESS:
        yield Check(
            "cpus",
            "CPUs",
            WARNING,
            what,
            "Even one thread is held back part of the time.",
            _MORE_CPUS,
        )
    elif cpu.granted < _LESS * len(cpu.allowed):
        yield Check(
            "cpus",
            "CPUs",
            NOTE,
            what,
            f"Programs that count CPUs count {len(cpu.allowed)} and do not see the limit: give "
            "threads and loader workers as numbers.",
        )
    elif len(cpu.allowed) < len(cpu.online):
        yield Check(
            "cpus",
            "CPUs",
            NOTE,
            what,
            f"os.cpu_count() says {len(cpu.online)}: loader workers and pools that follow it are "
            "too many.",
            "in Python: len(os.sched_getaffinity(0))",
        )
    else:
        yield Check("cpus", "CPUs", OK, what)


def _isolated(seen: Seen) -> list[int]:
    cpu = seen.machine.cpu
    isolated = set(cpu.isolated)
    return sorted(isolated.intersection(cpu.allowed))

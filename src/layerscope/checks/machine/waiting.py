"""How OpenMP threads wait: spinning is right on CPUs of their own and wrong on shared ones."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, Check, Seen
from layerscope.checks.phrases import threads_granted, threads_requested
from layerscope.host import runtimes

ORDER = 85

# Per cent of the last 10 s in which some thread waited for a CPU (the kernel's "some avg10").
_WANTED = 10.0


def check(seen: Seen) -> Iterator[Check]:
    """One judgement, of a process with OpenMP or of what will be started."""
    process = seen.machine.process
    if process is not None and not runtimes.of_kind(
        runtimes.told_apart(process.libraries), runtimes.OPENMP
    ):
        return
    told = seen.variables.get("OMP_WAIT_POLICY", "").strip()
    if told.lower() == "passive":
        yield Check("wait_policy", "waiting", OK, f"OMP_WAIT_POLICY is {told}")
        return
    what = "threads of OpenMP spin while they wait for work" + (
        f" (OMP_WAIT_POLICY is {told})" if told else ""
    )
    if threads_granted(seen.machine.cpu) == 1 == len(seen.machine.cpu.allowed):
        yield Check("wait_policy", "waiting", OK, what)
    elif wanted := _wanted(seen):
        yield Check(
            "wait_policy",
            "waiting",
            NOTE,
            f"{what}, and {wanted}",
            "Spinning takes CPUs from threads that have work: a step may take several times as "
            "long as without it. On CPUs of one's own it makes short operators faster.",
            "export OMP_WAIT_POLICY=passive",
        )
    else:
        what += ": right while no other program needs the CPUs"
        yield Check("wait_policy", "waiting", OK, what)


def _wanted(seen: Seen) -> str:
    """Who else wants the CPUs, in words; empty where nobody does."""
    cpu, noise = seen.machine.cpu, seen.machine.noise
    threads = threads_requested(seen.variables) or len(cpu.allowed)
    if threads > threads_granted(cpu):
        return "they are more than the CPUs granted"
    if noise.pressure_cpu is not None:
        is_pressed = noise.pressure_cpu >= _WANTED
        return "threads wait for CPUs here" if is_pressed else ""
    if noise.load is None or not cpu.online:
        return ""
    load, *_ = noise.load
    return "more wants the CPUs than there are" if load > len(cpu.online) else ""

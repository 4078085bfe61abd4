"""Threads of one core, and cores of unlike kinds."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.platform.check import NOTE, OK, UNSEEN, Check, Seen
from layerscope.platform.phrases import counted, cpu_list

ORDER = 50


def check(seen: Seen) -> Iterator[Check]:
    """SMT, then P and E cores."""
    yield _smt(seen)
    yield _kinds(seen)


def _smt(seen: Seen) -> Check:
    cpu = seen.machine.cpu
    if not cpu.cores or not cpu.online:
        return Check("smt", "SMT", UNSEEN, "which CPUs share a core is not told")
    per_core = len(cpu.online) / cpu.cores
    if per_core < 1.01:
        hidden = " (a hypervisor may hide it)" if cpu.is_virtual else ""
        return Check("smt", "SMT", OK, f"one thread a core{hidden}")
    what = f"{counted(len(cpu.online), 'CPU')} are {counted(cpu.cores, 'core')}"
    if cpu.faster and cpu.slower:
        return Check("smt", "SMT", OK, f"{what} of two kinds")
    # Which of the allowed CPUs share a core is known only where all are allowed.
    if len(cpu.allowed) < len(cpu.online) or cpu.granted < cpu.cores:
        return Check("smt", "SMT", OK, f"{what}; {cpu.granted:.3g} CPUs are granted")
    told = seen.variables.get("OMP_NUM_THREADS", "")
    if told.isdigit() and 0 < int(told) <= cpu.cores:
        return Check("smt", "SMT", OK, f"{what}; OMP_NUM_THREADS is {told}")
    return Check(
        "smt", "SMT", NOTE, what,
        "Two threads of a core share its arithmetic: matrix products are rarely faster with both.",
        f"export OMP_NUM_THREADS={cpu.cores}",
    )  # fmt: skip


def _kinds(seen: Seen) -> Check:
    cpu = seen.machine.cpu
    faster, slower = ({*kind} & {*cpu.allowed} for kind in (cpu.faster, cpu.slower))
    if not cpu.online:
        return Check("cores", "kinds of core", UNSEEN, "the kernel does not tell")
    if not cpu.faster or not cpu.slower:
        return Check("cores", "kinds of core", OK, "one, as far as the kernel tells")
    if not faster or not slower:
        which = "faster" if faster else "slower"
        return Check("cores", "kinds of core", OK, f"two, of which only the {which} may be used")
    # Slower cores have one thread each: what is left are the faster ones.
    threads = min(len(faster), max(1, (cpu.cores or len(cpu.online)) - len(cpu.slower)))
    return Check(
        "cores", "kinds of core", NOTE, f"{len(faster)} faster CPUs ({cpu_list(faster)}) and {len(slower)} slower",
        "OpenMP gives all threads the same share: the fast cores wait for the slow ones.",
        f"taskset -c {cpu_list(faster)} env OMP_NUM_THREADS={threads} python train.py",
    )  # fmt: skip

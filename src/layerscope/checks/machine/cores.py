"""Threads of one core, and cores of unlike kinds."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, Check, Seen
from layerscope.checks.phrases import counted, cpu_list, threads_granted, threads_requested

ORDER = 50

# A slow core does about 0.6 of what a fast one does. Equal shares on all of them are then done as
# soon as the fast ones alone would have done all where there are 0.7 slow ones for each fast one;
# with more of them it is for a trial to say.
_CLEARLY_FEWER = 0.7


def check(seen: Seen) -> Iterator[Check]:
    """SMT, then P and E cores."""
    yield _smt(seen)
    yield _kinds(seen)


def _smt(seen: Seen) -> Check:
    cpu = seen.machine.cpu
    if not cpu.cores or not cpu.online:
        return Check("smt", "SMT", UNSEEN, "which CPUs share a core is not known")
    per_core = len(cpu.online) / cpu.cores
    if per_core < 1.01:
        hidden = " (a hypervisor may hide it)" if cpu.is_virtual else ""
        return Check("smt", "SMT", OK, f"one thread a core{hidden}")
    what = f"{counted(len(cpu.online), 'CPU')} are {counted(cpu.cores, 'core')}"
    if cpu.faster and cpu.slower:
        return Check("smt", "SMT", OK, f"{what} of two kinds")
    is_all = len(cpu.allowed) == len(cpu.online)
    cores = len(cpu.allowed_cores) or (cpu.cores if is_all else 0)
    if cores and not is_all:
        are = f"{len(cpu.allowed)} allowed are" if len(cpu.allowed) > 1 else "allowed one is"
        what += f", the {are} {counted(cores, 'core')}"
    # Without a word about those that are allowed any number of cores may be behind them.
    if not cores or threads_granted(cpu) <= cores:
        granted = f"{counted(cpu.granted, 'CPU')} {'is' if cpu.granted == 1 else 'are'} granted"
        return Check("smt", "SMT", OK, f"{what}; {granted}")
    told = threads_requested(seen.variables)
    if told and told <= cores:
        return Check("smt", "SMT", OK, f"{what}; OMP_NUM_THREADS is {told}")
    return Check(
        "smt",
        "SMT",
        NOTE,
        what,
        "Two threads of a core share its arithmetic: matrix products are rarely faster with both.",
        f"export OMP_NUM_THREADS={cores}",
    )


def _kinds(seen: Seen) -> Check:
    cpu = seen.machine.cpu
    faster, slower = ({*kind} & {*cpu.allowed} for kind in (cpu.faster, cpu.slower))
    if not cpu.online:
        return Check("cores", "kinds of core", UNSEEN, "the kernel does not report it")
    if not cpu.faster or not cpu.slower:
        return Check("cores", "kinds of core", OK, "one, as far as the kernel reports")
    if not faster or not slower:
        which = "faster" if faster else "slower"
        return Check("cores", "kinds of core", OK, f"two, of which only the {which} may be used")
    cores = [len(kind & {*cpu.allowed_cores}) or len(kind) for kind in (faster, slower)]
    remedy = f"taskset -c {cpu_list(faster)} env OMP_NUM_THREADS={cores[0]} python train.py"
    if cores[1] >= _CLEARLY_FEWER * cores[0]:
        remedy = "layerscope tune -- python train.py"
    return Check(
        "cores",
        "kinds of core",
        NOTE,
        f"{len(faster)} faster CPUs ({cpu_list(faster)}) and {len(slower)} slower",
        "OpenMP gives all threads the same share: the fast cores wait for the slow ones.",
        remedy,
    )

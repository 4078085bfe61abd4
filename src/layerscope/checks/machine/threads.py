"""Threads against the CPUs that are granted: of the process, or of the libraries."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import counted, threads_granted, threads_requested
from layerscope.host.watch import Watched

ORDER = 10

# A process at rest has two pools (of OpenMP and of a BLAS) and a few threads beside them that do
# little.
_POOLS, _BESIDE = 2, 4
# Of threads that work, a few more than CPUs are the rule: a loader, the backward pass, a server.
_WORKING, _WORKING_BESIDE = 1.5, 2
# Less of the CPUs than this is used by a process that was told to use fewer.
_LITTLE = 0.5
_TURNS = "Threads take turns, and those that spin for work waste the time of those that have some."
_TURNS_IF = (
    "If they all work they take turns, and those that spin waste the time of those that "
    "have some to do."
)


def check(seen: Seen) -> Iterator[Check]:
    """One judgement."""
    if not seen.machine.cpu.allowed:
        what = "the kernel does not report which CPUs may be used"
        yield Check("threads", "threads", UNSEEN, what)
    elif seen.machine.process is None:
        yield _to_come(seen)
    else:
        yield _living(seen)


def _to_come(seen: Seen) -> Check:
    """What a program will start that says nothing itself."""
    cpu = seen.machine.cpu
    told = threads_requested(seen.variables)
    number = told or len(cpu.allowed)
    who = f"libraries count {counted(number, 'CPU')} and start as many threads"
    who = f"OMP_NUM_THREADS is {told}" if told else who
    granted = f"{counted(cpu.granted, 'CPU')} {'is' if cpu.granted == 1 else 'are'} granted"
    if number > threads_granted(cpu):
        return Check(
            "threads",
            "threads",
            WARNING,
            f"{who}, but {granted}",
            _TURNS,
            f"export OMP_NUM_THREADS={threads_granted(cpu)}",
        )
    return Check("threads", "threads", OK, f"{who}; {granted}")


def _living(seen: Seen) -> Check:
    process, cpu, watched = seen.machine.process, seen.machine.cpu, seen.watched
    assert process is not None
    working = watched.process_threads if watched else None
    used = watched.process_cpus if watched else None
    granted = f"{counted(cpu.granted, 'CPU')} granted"
    if working is None:
        what = (
            f"{counted(process.threads, 'thread')} on {granted}; how many of them work was not "
            "watched"
        )
        most = _POOLS * cpu.granted + _BESIDE
        number = process.threads
    else:
        what = f"{_working(process.threads, working, watched)} worked, on {granted}"
        what += "" if used is None else f", and used {counted(round(used, 1), 'CPU')}"
        most = _WORKING * cpu.granted + _WORKING_BESIDE
        number = working
    told = threads_requested(seen.variables)
    what += f"; OMP_NUM_THREADS is {told}" if told else ""
    are_told = (told or 0) > threads_granted(cpu)
    if number > most or are_told:
        # Those that wait nearly all the time do not take turns with anybody.
        is_idle = used is not None and used < _LITTLE * cpu.granted
        is_sure = (working is not None or are_told) and not is_idle
        return Check(
            "threads",
            "threads",
            WARNING if is_sure else NOTE,
            what,
            _TURNS if is_sure else _TURNS_IF,
            f"export OMP_NUM_THREADS={threads_granted(cpu)}",
        )
    if used is not None and told and told < threads_granted(cpu) and used < _LITTLE * cpu.granted:
        return Check(
            "threads",
            "threads",
            NOTE,
            what,
            "The other CPUs are left to other programs (torchrun sets 1 by itself, for each of its "
            "processes).",
            f"export OMP_NUM_THREADS={threads_granted(cpu)}",
        )
    return Check("threads", "threads", OK, what)


def _working(threads: int, working: int, watched: Watched | None) -> str:
    """How many of how many, both counted at the end of the watch: `threads` were there when it was
    set up.
    """
    left = watched.threads_left if watched else None
    what = f"{working} of its {counted(max(threads, working) if left is None else left, 'thread')}"
    changes = (
        (("began", watched.threads_begun), ("ended", watched.threads_ended)) if watched else ()
    )
    told = [f"{number} {verb}" for verb, number in changes if number]
    return f"{what} ({' and '.join(told)} while it was watched)" if told else what

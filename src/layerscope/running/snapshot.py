"""One look at processes: what each of their threads does now, and on whom it waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layerscope.model.running import CUT, PYTHON, Deadlock, ProcessNow, Snapshot, ThreadNow, Wait
from layerscope.running import collectives, deadlocks, processes
from layerscope.running.looked import Look
from layerscope.running.names import Names
from layerscope.running.raw_threads import Raw, RawProcess, RawThread, look
from layerscope.running.waits import wait_of

_STATES = {"R": "running", "S": "waiting", "D": "blocked", "T": "stopped", "t": "stopped"}
_ENDED = "ended"
_OLDEST = 11  # minor version of Python
_PYTHON = "3."


def take(sampler: Path, pids: Sequence[int], with_native: bool = False) -> Snapshot:
    """Look at these processes. ReadError: there is none of the first; RunError: the program
    `sampler` does not run.
    """
    processes.check(pids[0])
    raw = look(sampler, pids)
    names = Names(raw)
    _load(names, raw, with_native)
    seen = Look(raw, names)
    waits = _waits(seen)
    collectives.add(seen, waits)
    circles = [one for one in deadlocks.circles(waits) if _lasts(one, raw, sampler)]
    found = [_process(one, seen, waits, with_native) for one in raw.processes]
    problems = [f"Process {one.pid}: {one.note}" for one in found if one.note]
    return Snapshot([one for one in found if one.threads], circles, problems)


def _load(names: Names, raw: Raw, with_native: bool) -> None:
    """Look up what is shown, and what tells for what a thread waits."""
    if with_native:
        names.load(raw.threads)
        return
    without_python = [one for one in raw.threads if not _has_python(one)]
    names.load(without_python)
    others = [one for one in raw.threads if one.futex and not one.lock and _has_python(one)]
    names.load(others, is_innermost_only=True)


def _has_python(thread: RawThread) -> bool:
    return any(len(frame) == 2 for frame in thread.frames)  # noqa: PLR2004


def _waits(seen: Look) -> dict[tuple[int, int], Wait]:
    found = {}
    for thread in seen.raw.threads:
        wait = wait_of(thread, seen)
        if wait is not None:
            found[thread.pid, thread.thread] = wait
    return found


def _lasts(circle: Deadlock, raw: Raw, sampler: Path) -> bool:
    again = look(sampler, sorted({pid for pid, _ in circle.threads}))
    return deadlocks.is_lasting(circle, raw.threads, again.threads)


def _process(
    told: RawProcess, seen: Look, waits: dict[tuple[int, int], Wait], with_native: bool
) -> ProcessNow:
    pid = told.process
    threads = [_thread(one, seen, waits, with_native) for one in seen.raw.threads if one.pid == pid]
    note = processes.refused(pid, told.errno) if told.errno else ""
    note = note or processes.unread_python(pid, told.python)
    python = f"{_PYTHON}{told.python}" if told.python >= _OLDEST else ""
    rank = collectives.rank_of(pid)
    return ProcessNow(pid, processes.command(pid), threads, python, note, rank)


def _thread(
    told: RawThread, seen: Look, waits: dict[tuple[int, int], Wait], with_native: bool
) -> ThreadNow:
    stack = seen.names.stack(told)
    if _has_python(told) and not with_native:
        stack = tuple(frame for frame in stack if frame.layer in (PYTHON, CUT))
    return ThreadNow(
        pid=told.pid,
        tid=told.thread,
        name=told.python_name or told.name,
        state=_STATES.get(told.state, _ENDED),
        stack=stack,
        wait=waits.get((told.pid, told.thread)),
        is_torn=told.is_torn,
        is_native=told.is_native,
    )

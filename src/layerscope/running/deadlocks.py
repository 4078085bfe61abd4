"""Threads that wait for each other in a circle."""

from __future__ import annotations

from layerscope.model.running import Deadlock, Wait
from layerscope.running.told import ToldThread

# Waits that end only when the other thread does something itself.
_KINDS = ("lock", "mutex", "join")
# Python wakes from time to time in its wait for it, and goes on waiting.
_GIL = "gil"
# The same of the only thread of another process, in system calls that have no limit of time:
# reading, writing, wait4, fcntl and flock, waitid.
_PROCESS_KINDS = ("pipe", "socket", "child", "file")
_UNTIMED = (0, 1, 19, 20, 44, 45, 46, 47, 61, 72, 73, 247)
_FUTEX, _TIME = 202, 3
Thread = tuple[int, int]


def circles(waits: dict[Thread, Wait], threads: list[ToldThread]) -> list[Deadlock]:
    """Each circle once, from its first thread on; `threads`: all that were looked at."""
    of_process: dict[int, list[Thread]] = {}
    for one in threads:
        of_process.setdefault(one.pid, []).append((one.pid, one.thread))
    leads: dict[Thread, list[Thread]] = {}
    for one in threads:
        wait = waits.get((one.pid, one.thread))
        if wait is None or len(wait.on) != 1 or not _has_no_end(one, wait):
            continue
        (on,) = wait.on
        # Of a process with several threads any could do it.
        all_of_it = of_process.get(on.pid, [])
        if on.tid or len(all_of_it) == 1:
            leads[one.pid, one.thread] = [(on.pid, on.tid)] if on.tid else all_of_it
    found: dict[frozenset[Thread], tuple[Thread, ...]] = {}
    for first in leads:
        way = _back_to(first, leads)
        if way:
            found.setdefault(frozenset(way), way)
    return [Deadlock(way) for way in found.values()]


def _has_no_end(thread: ToldThread, wait: Wait) -> bool:
    """Whether it waits for as long as the other one does nothing: no time ends it."""
    if wait.kind in _PROCESS_KINDS:
        return thread.call in _UNTIMED
    if wait.kind == _GIL:
        return True
    return wait.kind in _KINDS and not (thread.call == _FUTEX and thread.arguments[_TIME])


def _back_to(first: Thread, leads: dict[Thread, list[Thread]]) -> tuple[Thread, ...]:
    """The shortest way from a thread to itself, over those that it waits for; empty where there
    is none. Each thread is gone to once.

    `leads`: by thread those that it waits for.
    """
    ways: list[tuple[Thread, ...]] = [(first,)]
    seen: set[Thread] = set()
    for way in ways:
        for following in leads.get(way[-1], []):
            if following == first:
                return way
            if following not in seen:
                seen.add(following)
                ways.append((*way, following))
    return ()


def is_lasting(
    circle: Deadlock,
    waits: dict[Thread, Wait],
    first: list[ToldThread],
    second: list[ToldThread],
) -> bool:
    """Whether all its threads have waited from the first look to the second: none of them has left
    a CPU in between, so they waited at the same time. One that waits for the GIL may have, and
    wait for it again: as long as the one that has it waits, it does not go on.
    """
    of = {one: waits[one].kind for one in circle.threads}
    return _states(of, first) == _states(of, second)


def _states(of: dict[Thread, str], threads: list[ToldThread]) -> dict[Thread, tuple[object, ...]]:
    """Of each of these threads how often it has left a CPU, and the
    system call that it is in. `of`: for what each waits.
    """
    found: dict[Thread, tuple[object, ...]] = {}
    for one in threads:
        key = one.pid, one.thread
        if of.get(key) == _GIL:
            found[key] = (one.call, *one.arguments[:1])
        elif key in of:
            found[key] = (one.switches, one.call, tuple(one.arguments))
    return found

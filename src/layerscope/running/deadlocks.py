"""Threads that wait for each other in a circle."""

from __future__ import annotations

from layerscope.model.running import Deadlock, Wait
from layerscope.running.told import ToldThread

# Waits that end only when the other thread does something itself.
_KINDS = ("lock", "mutex", "join", "gil")
Thread = tuple[int, int]


def circles(waits: dict[Thread, Wait]) -> list[Deadlock]:
    """Each circle once, from its first thread on."""
    leads: dict[Thread, list[Thread]] = {}
    for thread, wait in waits.items():
        if wait.kind in _KINDS and len(wait.on) == 1:
            leads[thread] = [(one.pid, one.tid) for one in wait.on if one.tid]
    found: dict[frozenset[Thread], tuple[Thread, ...]] = {}
    for first in leads:
        way = _back_to(first, leads)
        if way:
            found.setdefault(frozenset(way), way)
    return [Deadlock(way) for way in found.values()]


def _back_to(first: Thread, leads: dict[Thread, list[Thread]]) -> tuple[Thread, ...]:
    """The shortest way from a thread to itself, over those that it waits for; empty where there
    is none. Each thread is gone to once.
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


def is_lasting(circle: Deadlock, first: list[ToldThread], second: list[ToldThread]) -> bool:
    """Whether all its threads have waited from the first look to the second: none of them has left
    a CPU in between, so they waited at the same time.
    """
    return _states(circle, first) == _states(circle, second)


def _states(circle: Deadlock, threads: list[ToldThread]) -> dict[Thread, tuple[object, ...]]:
    """Of each thread of the circle how often it has left a
    CPU, and the system call that it is in.
    """
    found: dict[Thread, tuple[object, ...]] = {}
    for one in threads:
        key = one.pid, one.thread
        if key in circle.threads:
            found[key] = (one.switches, one.call, tuple(one.arguments))
    return found

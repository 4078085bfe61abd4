"""What a thread waits for and on whom: one file for each kind of wait, asked in the order of ORDER.

Each file has `find(thread, seen) -> Wait | None`: what `thread` waits for, if it is of this kind.
"""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread
from layerscope.running.waits import (
    children,
    descriptors,
    fifos,
    file_locks,
    gil,
    joins,
    mutexes,
    others,
    python_calls,
    python_locks,
    sleeps,
)

# The first that knows it says it: what holds however a lock is used comes before the lock itself.
ORDER = (
    gil.find,
    joins.find,
    python_calls.find,
    python_locks.find,
    mutexes.find,
    children.find,
    fifos.find,
    file_locks.find,
    descriptors.find,
    sleeps.find,
    others.find,
)


def wait_of(thread: ToldThread, seen: Observed) -> Wait | None:
    """What the thread waits for; None: it waits for nothing that is known."""
    if thread.call is None:
        return None
    for find in ORDER:
        wait = find(thread, seen)
        if wait is not None:
            return wait
    return None

"""Locks of Python. An RLock names its owner; who holds a Lock is known by the `with` blocks of all
threads.
"""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running import told
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_PARTS = 4
# Python 3.13 waits in it for no lock.
_SIMPLE_QUEUE = "_queue_SimpleQueue_get"
_SHARED = {
    told.SIMPLE_QUEUE: Wait("queue", "an item in a queue"),
    told.SHARED_SEMAPHORE: Wait("semaphore", "a semaphore of multiprocessing"),
    told.SHARED_LOCK: Wait(
        "shared_lock", "a lock of multiprocessing", (), "which process holds it is not known"
    ),
}


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """The lock that the stack of the thread names."""
    if thread.python_rlock:
        return _rlock(thread, thread.python_rlock[0], seen)
    if len(thread.lock) != _PARTS:
        names = seen.names.innermost(thread)
        in_queue = any(name.startswith(_SIMPLE_QUEUE) for name in names)
        return _SHARED[told.SIMPLE_QUEUE] if in_queue else None
    address, _, kind, owner = thread.lock
    if kind in _SHARED:
        return _SHARED[kind]
    if kind == told.RLOCK:
        return _rlock(thread, owner, seen)
    return _lock(thread, address, seen)


def _rlock(thread: ToldThread, owner: int, seen: Observed) -> Wait:
    """The wait for a lock that says who has it."""
    what = "an RLock"
    known = seen.identified(thread.pid, owner)
    if known is not None and known is not thread:
        at = seen.place(known)
        how = f"holds it, at {at}" if at else "holds it"
        return Wait("lock", what, (seen.waited(known, how),))
    has_ended = owner and known is None
    note = "the thread that holds it has ended" if has_ended else "nobody holds it at this moment"
    return Wait("lock", what, (), note)


def _lock(thread: ToldThread, address: int, seen: Observed) -> Wait:
    """The wait for a Lock: it has one owner, so where several threads are in `with` blocks of it,
    some have released it themselves; those that wait for it too, first of all.

    `address`: of what is waited for in it.
    """
    inside = seen.holders(thread.pid, address)
    others = [one for one in inside if one.lock[:1] != [address]] or inside
    if len(others) > 1:
        note = f"who holds it is not known: {len(others)} threads are in `with` blocks of it"
        return Wait("lock", "a Lock", (), note)
    for one in others:
        how = "is in a `with` block of it itself"
        if one is not thread:
            at = seen.place(one)
            how = f"is in a `with` block of it, at {at}" if at else "is in a `with` block of it"
        return Wait("lock", "a Lock", (seen.waited(one, how),), is_sure=False)
    note = "who holds it is not known: no running function is in a `with` block of it"
    return Wait("lock", "a Lock", (), note)

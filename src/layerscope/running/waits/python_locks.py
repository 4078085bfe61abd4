"""Locks of Python. An RLock names its owner; who holds a Lock is known by the `with` blocks of all
threads.
"""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_PARTS = 4


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """The lock that the stack of the thread names."""
    if len(thread.lock) != _PARTS:
        return None
    address, _, is_rlock, owner = thread.lock
    what = "an RLock" if is_rlock else "a Lock"
    others = [one for one in seen.holders(thread.pid, address) if one is not thread]
    if is_rlock:
        known = seen.identified(thread.pid, owner)
        others = [known] if known is not None else []
    if others:
        on = tuple(seen.waited(one, _how(one, seen)) for one in others)
        return Wait("lock", what, on)
    if seen.holders(thread.pid, address):
        return Wait("lock", what, (seen.waited(thread, "holds it itself"),))
    note = "nobody holds it at this moment"
    if owner:
        note = "the thread that holds it has ended"
    if not is_rlock:
        note = "who holds it is not known: it is in no `with` block"
    return Wait("lock", what, (), note)


def _how(holder: ToldThread, seen: Observed) -> str:
    """What makes it the owner, and where it is."""
    at = seen.place(holder)
    return f"holds it, at {at}" if at else "holds it"

"""Locks of Python. An RLock names its owner; who holds a Lock is known by the `with` blocks of all
threads.
"""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.looked import Look
from layerscope.running.raw_threads import RawThread

_PARTS = 4


def find(thread: RawThread, look: Look) -> Wait | None:
    """The lock that the stack of the thread names."""
    if len(thread.lock) != _PARTS:
        return None
    address, _, is_rlock, owner = thread.lock
    what = "an RLock" if is_rlock else "a Lock"
    others = [one for one in look.holders(thread.pid, address) if one is not thread]
    if is_rlock:
        known = look.identified(thread.pid, owner)
        others = [known] if known is not None else []
    if others:
        on = tuple(look.waited(one, _how(one, look)) for one in others)
        return Wait("lock", what, on)
    if look.holders(thread.pid, address):
        return Wait("lock", what, (look.waited(thread, "holds it itself"),))
    note = "nobody holds it at this moment"
    if not is_rlock:
        note = "who holds it is not known: it was acquired without `with`"
    return Wait("lock", what, (), note)


def _how(holder: RawThread, look: Look) -> str:
    at = look.place(holder)
    return f"holds it, at {at}" if at else "holds it"

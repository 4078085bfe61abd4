"""The GIL: a thread that wants to run code of Python waits for the one that does."""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.looked import Look
from layerscope.running.raw_threads import RawThread

_FUTEX = 202
_PARTS = 3


def find(thread: RawThread, look: Look) -> Wait | None:
    """What it waits for lies in the GIL itself."""
    gil = look.process(thread).gil
    if thread.call != _FUTEX or len(gil) != _PARTS:
        return None
    begin, end, state_at = gil
    if not begin <= thread.arguments[0] < end:
        return None
    holder = look.with_state(thread.pid, state_at)
    if holder is None:
        return Wait("gil", "the GIL", (), "no thread holds it at this moment")
    if holder is thread:
        return Wait("gil", "another thread to take the GIL")
    at = look.place(holder)
    how = f"runs Python at {at}" if at else "holds it"
    return Wait("gil", "the GIL", (look.waited(holder, how),))

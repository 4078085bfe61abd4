"""The GIL: a thread that wants to run code of Python waits for the one that does."""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_FUTEX = 202


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """What it waits for lies in the GIL itself."""
    gil = seen.process(thread).gil
    if thread.call != _FUTEX or not gil:
        return None
    begin, end, _ = gil
    if not begin <= thread.arguments[0] < end:
        return None
    holder = seen.holder_of_gil(thread.pid)
    if holder is None:
        return Wait("gil", "the GIL", (), "no thread holds it at this moment")
    if holder is thread:
        return Wait("gil", "another thread to take the GIL")
    at = seen.place(holder)
    how = f"holds it, at {at}" if at else "holds it"
    return Wait("gil", "the GIL", (seen.waited(holder, how),))

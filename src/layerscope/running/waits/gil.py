"""The GIL: a thread that wants to run code of Python waits for the one that does."""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_FUTEX = 202


def is_in(thread: ToldThread, gil: list[int]) -> bool:
    """Whether it waits for a word of this GIL: from where to where it lies, and who
    has it.
    """
    if thread.call != _FUTEX or not gil:
        return False
    begin, end, _ = gil
    word = thread.arguments[0]
    return begin <= word < end


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """What it waits for lies in the GIL itself."""
    if not is_in(thread, seen.process(thread).gil):
        return None
    holder = seen.holder_of_gil(thread.pid)
    # It may have changed hands since the thread was looked at.
    if holder is None:
        return Wait("gil", "the GIL", (), "no thread holds it at this moment")
    if holder is thread:
        return Wait("gil", "another thread to take the GIL")
    at = seen.place(holder)
    how = f"holds it, at {at}" if at else "holds it"
    return Wait("gil", "the GIL", (seen.waited(holder, how),))

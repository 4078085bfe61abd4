"""The end of a thread: `Thread.join` of Python, and pthread_join."""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_FUTEX = 202
# Python's own functions between `Thread.join` and the wait.
_JOINS = ("Thread.join", "Thread._wait_for_tstate_lock")
_SHUTDOWN = "_shutdown"
_PRIVATE = 128


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """pthread_join waits for the word that has the number of the other thread until it ends."""
    stack = seen.python_stack(thread)
    name = stack[0].name if stack else ""
    if thread.joins and name in _JOINS:
        other = seen.thread(thread.pid, thread.joins)
        return _of(other, thread.joins, seen)
    if stack and name == _SHUTDOWN and stack[0].file.endswith("threading.py"):
        return _of_all(thread, seen)
    if thread.call != _FUTEX or not thread.futex or thread.arguments[1] & _PRIVATE:
        return None
    number = thread.arguments[2]
    other = seen.thread(thread.pid, number)
    if other is None or other is thread or thread.futex[0] != number:
        return None
    return _of(other, number, seen)


def _of_all(thread: ToldThread, seen: Observed) -> Wait:
    """The wait at the end of the program for all threads that are no daemons: which are, nobody
    says.
    """
    others = [one for one in seen.threads(thread.pid) if one.identification and one is not thread]
    if len(others) == 1:
        return _of(others[0], 0, seen)
    return Wait("join", "its other threads to end (all but daemons)")


def _of(other: ToldThread | None, number: int, seen: Observed) -> Wait:
    """The wait for `other`, where it is there; else the note says
    why not. `number`: as its Thread object has it.
    """
    if other is None:
        note = f"thread {number} has ended meanwhile" if number > 0 else "it has not begun"
        return Wait("join", "a thread to end", (), note)
    at = seen.place(other)
    how = f"is at {at}" if at else ""
    return Wait("join", "a thread to end", (seen.waited(other, how),))

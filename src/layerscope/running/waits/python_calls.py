"""What functions of Python's library wait for that use locks to wait, but not for their owner."""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import RLOCK, ToldThread

_NOTIFIED = "Condition.wait"
_KIND = 2  # of the parts of a lock
# Who calls it, from the most particular on.
_CALLERS = {
    "Queue.get": ("queue", "an item in a queue"),
    "Queue.put": ("queue", "room in a queue"),
    "Queue.join": ("queue", "a queue to be done with"),
    "Event.wait": ("event", "an event to be set"),
    "Semaphore.acquire": ("semaphore", "a semaphore"),
    "BoundedSemaphore.acquire": ("semaphore", "a semaphore"),
    "Barrier._wait": ("barrier", "the other threads of a barrier"),
    "Barrier._enter": ("barrier", "a barrier to be empty"),
    "Future.result": ("future", "the result of a future"),
    "Future.exception": ("future", "the result of a future"),
    "Condition.wait_for": ("condition", "a condition to be notified"),
}
_STARTS = ("Thread.start",)
_LIBRARY = ("threading.py", "queue.py", "_base.py")


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """It is in `Condition.wait`, which takes a lock that nobody else has: what for, its callers
    in the library say.
    """
    stack = seen.python_stack(thread)
    if thread.lock and thread.lock[_KIND] == RLOCK:
        return None  # it takes its own lock back
    if not stack or stack[0].name != _NOTIFIED or not stack[0].file.endswith("threading.py"):
        return None
    kind, what = "condition", "a condition to be notified"
    for frame in stack[1:]:
        if frame.name in _STARTS:
            return Wait("event", "a new thread to begin")
        if frame.name in _CALLERS:
            kind, what = _CALLERS[frame.name]
        if not frame.file.endswith(_LIBRARY):
            break
    return Wait(kind, what)

"""Waits for an item of a `Queue`."""

from __future__ import annotations

import queue

import planted

QUEUE: queue.Queue[int] = queue.Queue()


def waits() -> None:
    """Until it is there."""
    QUEUE.get()  # line: wait


def wakes() -> None:
    """Ends the wait."""
    QUEUE.put(1)


planted.wait_in_turns(waits, wakes, "lock")

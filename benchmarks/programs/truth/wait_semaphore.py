"""Waits for a `Semaphore`."""

from __future__ import annotations

import threading

import planted

SEMAPHORE = threading.Semaphore(0)


def waits() -> None:
    """Until it is there."""
    SEMAPHORE.acquire()  # line: wait


def wakes() -> None:
    """Ends the wait."""
    SEMAPHORE.release()


planted.wait_in_turns(waits, wakes, "lock")

"""Waits for a lock that another thread holds."""

from __future__ import annotations

import threading

import planted

LOCK = threading.Lock()
LOCK.acquire()


def waits() -> None:
    """Until it is there."""
    LOCK.acquire()  # line: wait


def wakes() -> None:
    """Ends the wait."""
    if LOCK.locked():
        LOCK.release()


planted.wait_in_turns(waits, wakes, "lock")

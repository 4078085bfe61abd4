"""Waits for an `Event`."""

from __future__ import annotations

import threading

import planted

EVENT = threading.Event()


def waits() -> None:
    """Until it is there."""
    EVENT.wait()  # line: wait
    EVENT.clear()


def wakes() -> None:
    """Ends the wait."""
    EVENT.set()


planted.wait_in_turns(waits, wakes, "lock")

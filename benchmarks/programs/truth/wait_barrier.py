"""Waits for a `Barrier` of two threads."""

from __future__ import annotations

import threading

import planted

BARRIER = threading.Barrier(2)


def waits() -> None:
    """Until it is there."""
    BARRIER.wait()  # line: wait


def wakes() -> None:
    """Ends the wait."""
    BARRIER.wait()


planted.wait_in_turns(waits, wakes, "lock|barrier")

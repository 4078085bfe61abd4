"""Waits for a `Condition`."""

from __future__ import annotations

import threading

import planted

CONDITION = threading.Condition()


def waits() -> None:
    """Until it is there."""
    with CONDITION:
        CONDITION.wait()  # line: wait


def wakes() -> None:
    """Ends the wait."""
    with CONDITION:
        CONDITION.notify()


planted.wait_in_turns(waits, wakes, "lock")

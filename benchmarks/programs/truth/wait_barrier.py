"""Waits for a `Barrier` of two threads."""

from __future__ import annotations

import threading
import time

import planted

BARRIER = threading.Barrier(2)


def waits() -> None:
    """Until it is there."""
    BARRIER.wait()  # line: wait


def other() -> None:
    """Sleeps, then ends the wait of the first."""
    while True:
        with planted.Wait(wait="sleep"):
            time.sleep(0.03)
        BARRIER.wait()


def main() -> None:
    """Waits, and computes a little."""
    threading.Thread(target=other, daemon=True).start()
    while planted.going():
        with planted.Wait(wait="lock|barrier", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()

"""Waits for a `Semaphore`."""

from __future__ import annotations

import threading
import time

import planted

SEMAPHORE = threading.Semaphore(0)


def waits() -> None:
    """Until it is there."""
    SEMAPHORE.acquire()  # line: wait


def other() -> None:
    """Sleeps, then ends the wait of the first."""
    while True:
        with planted.Wait(wait="sleep"):
            time.sleep(0.03)
        SEMAPHORE.release()


def main() -> None:
    """Waits, and computes a little."""
    threading.Thread(target=other, daemon=True).start()
    while planted.going():
        with planted.Wait(wait="lock", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()

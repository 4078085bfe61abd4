"""Waits for a lock that another thread holds."""

from __future__ import annotations

import threading
import time

import planted

LOCK = threading.Lock()
LOCK.acquire()


def waits() -> None:
    """Until it is there."""
    LOCK.acquire()  # line: wait


def other() -> None:
    """Sleeps, then ends the wait of the first."""
    while True:
        with planted.Wait(wait="sleep"):
            time.sleep(0.03)
        if LOCK.locked():
            LOCK.release()


def main() -> None:
    """Waits, and computes a little."""
    threading.Thread(target=other, daemon=True).start()
    while planted.going():
        with planted.Wait(wait="lock", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()

"""Waits for an item of a `Queue`."""

from __future__ import annotations

import queue
import threading
import time

import planted

QUEUE: queue.Queue[int] = queue.Queue()


def waits() -> None:
    """Until it is there."""
    QUEUE.get()  # line: wait


def other() -> None:
    """Sleeps, then ends the wait of the first."""
    while True:
        with planted.Wait(wait="sleep"):
            time.sleep(0.03)
        QUEUE.put(1)


def main() -> None:
    """Waits, and computes a little."""
    threading.Thread(target=other, daemon=True).start()
    while planted.going():
        with planted.Wait(wait="lock", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()

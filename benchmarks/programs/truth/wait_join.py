"""Waits for the end of threads."""

from __future__ import annotations

import threading
import time

import planted


def other() -> None:
    """Sleeps."""
    with planted.Wait(wait="sleep"):
        time.sleep(0.03)


def waits() -> None:
    """Until it has ended."""
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()  # line: wait


def main() -> None:
    """Waits, and computes a little."""
    while planted.going():
        with planted.Wait(wait="thread|join", wait_function="waits", wait_line="wait"):
            waits()
        planted.compute()
    planted.finish()


main()

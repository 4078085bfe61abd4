"""Two threads that compute in Python at once: each waits for the GIL half of the time."""

from __future__ import annotations

import threading

import planted


def burn() -> int:
    """Some milliseconds in Python alone."""
    total = 0
    for i in range(100_000):
        total += i
    return total


def one() -> None:
    """A thread."""
    with planted.GilWait(wait="gil", wait_function="burn|going"):
        while planted.going():
            with planted.Cpu(function="burn"):
                burn()


def main() -> None:
    """Both."""
    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    with planted.Wait(wait="thread|join"):
        for thread in threads:
            thread.join()
    planted.finish()


main()

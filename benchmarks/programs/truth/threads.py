"""Threads in turns: each has a function of its own, and none waits for the GIL."""

# also: kernel

from __future__ import annotations

import threading

import planted


def first() -> None:
    """Works three quarters of it."""
    with planted.Cpu(function="first", line="first"):
        for _ in range(3 * planted.BATCH):
            planted.work()  # line: first


def second() -> None:
    """Works a quarter of it."""
    with planted.Cpu(function="second", line="second"):
        for _ in range(planted.BATCH):
            planted.work()  # line: second


def main() -> None:
    """A thread for each batch."""
    while planted.going():
        for target in (first, second):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    planted.finish()


main()

"""A process that `multiprocessing` spawned computes; the parent waits for it."""

from __future__ import annotations

import multiprocessing
import sys

import planted


def child() -> None:
    """Works."""
    for _ in range(planted.BATCH):
        planted.compute()  # line: child


def run() -> None:
    """In the child."""
    while planted.going():
        with planted.Cpu(function="child", line="child"):
            child()
    planted.finish()


def parent() -> None:
    """In the parent. `multiprocessing` has a function `main` that waits, too."""
    process = multiprocessing.get_context("spawn").Process(target=run)
    process.start()
    with planted.Wait(wait="child", wait_function="parent"):
        process.join()
    planted.finish()


if __name__ == "__main__" and sys.argv:
    parent()

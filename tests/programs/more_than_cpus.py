"""More processes that compute than there are CPUs."""

from __future__ import annotations

import os
import time

SECONDS = 1.0


def compute() -> None:
    """Compute until the time is over, on a CPU or not."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        sum(range(10_000))


if __name__ == "__main__":
    cpus = len(os.sched_getaffinity(0))
    children = []
    for _ in range(2 * cpus):
        child = os.fork()
        if not child:
            compute()
            os._exit(0)
        children.append(child)
    compute()
    for child in children:
        os.waitpid(child, 0)

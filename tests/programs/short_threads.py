"""Threads that end before a period of samples is over: prints their CPU time by function, as
JSON. With the word `kernel` they use it in the kernel alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

THREADS = 80
SECONDS = {"one": 0.009, "other": 0.004}

batch = (lambda: os.getrandom(1 << 16)) if "kernel" in sys.argv else (lambda: sum(range(20_000)))
used_ns = dict.fromkeys(SECONDS, 0)


def work(name: str) -> None:
    """Use the CPU time of that function."""
    begin_ns = time.thread_time_ns()
    while time.thread_time_ns() < begin_ns + SECONDS[name] * 1e9:
        batch()
    used_ns[name] += time.thread_time_ns() - begin_ns


def one() -> None:
    """The longer one."""
    work("one")


def other() -> None:
    """The shorter one."""
    work("other")


if __name__ == "__main__":
    for _ in range(THREADS):
        for target in (one, other):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    print(json.dumps(used_ns))

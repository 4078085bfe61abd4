"""A function at the end of many calls: prints the CPU time below each number of them, as JSON."""

from __future__ import annotations

import json
import sys
import time

SECONDS = 1.0


def innermost() -> None:
    """Use so much CPU time here."""
    end = time.thread_time() + SECONDS
    while time.thread_time() < end:
        sum(range(200))


def deeper(calls: int) -> None:
    if calls:
        deeper(calls - 1)
    else:
        innermost()


def from_600() -> None:
    deeper(600)


def from_2000() -> None:
    deeper(2000)


def from_6000() -> None:
    deeper(6000)


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    used_ns = {}
    for function in (from_600, from_2000, from_6000):
        begin_ns = time.thread_time_ns()
        function()
        used_ns[function.__name__] = time.thread_time_ns() - begin_ns
    print(json.dumps(used_ns))

"""Functions that are over at once and ask the kernel meanwhile, called from two others: prints the
CPU time of each of these, as JSON.
"""

from __future__ import annotations

import json
import time

SECONDS = 2.5
ROUNDS = 100


def short(number: int) -> int:
    """Asks for a clock that the kernel alone has, twice."""
    begin_ns = time.thread_time_ns()
    return number * number + time.thread_time_ns() - begin_ns


def alike(number: int) -> int:
    begin_ns = time.thread_time_ns()
    return len([number, number]) + time.thread_time_ns() - begin_ns


def calls_often() -> None:
    for number in range(3 * ROUNDS):
        short(number)
        short(number)
        alike(number)


def calls_seldom() -> None:
    for number in range(ROUNDS):
        short(number)
        short(number)
        alike(number)


def computes() -> None:
    sum(i * i for i in range(1_000))


def main() -> None:
    used_ns = dict.fromkeys(("calls_often", "calls_seldom", "computes"), 0)
    end_ns = time.thread_time_ns() + SECONDS * 1e9
    while time.thread_time_ns() < end_ns:
        for function in (calls_often, calls_seldom, computes):
            begin_ns = time.thread_time_ns()
            function()
            used_ns[function.__name__] += time.thread_time_ns() - begin_ns
    print(json.dumps(used_ns))


if __name__ == "__main__":
    main()

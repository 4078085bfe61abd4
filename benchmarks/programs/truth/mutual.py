"""Two functions that call each other."""

# also: kernel

from __future__ import annotations

import time

import planted

DEPTH = 40


def even(level: int) -> None:
    """Works, then the other."""
    for _ in range(3):
        planted.work()  # line: even
    if level:
        odd(level - 1)


def odd(level: int) -> None:
    """Works a third of it, then the other."""
    planted.work()  # line: odd
    if level:
        even(level - 1)


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function_total="even") as whole:
            even(DEPTH)
        # The same calls of the same C function: by their number.
        ns = time.thread_time_ns() - whole.begin
        evens, odds = 3 * (DEPTH // 2 + 1), DEPTH // 2
        for name, calls in (("even", evens), ("odd", odds)):
            planted.add("function", name, ns * calls // (evens + odds))
            planted.add("line", name, ns * calls // (evens + odds))
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

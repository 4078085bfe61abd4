"""A generator expression in a built-in function."""

# also: kernel

from __future__ import annotations

import planted


def worker(_: int) -> int:
    """Works."""
    planted.work()  # line: work
    return 1


def consume() -> None:
    """Drives it."""
    sum(worker(i) for i in range(planted.BATCH))


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="worker", line="work", function_total="consume"):
            consume()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

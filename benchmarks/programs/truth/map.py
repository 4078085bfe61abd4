"""`map` over a function."""

# also: kernel

from __future__ import annotations

import planted


def worker(_: int) -> object:
    """Works."""
    return planted.work()  # line: work


def consume() -> None:
    """Drives it."""
    list(map(worker, range(planted.BATCH)))  # line: turn


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="worker", line="work", line_total="turn"):
            consume()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

"""Calls of a plain function."""

# also: kernel

from __future__ import annotations

import planted


def worker() -> None:
    """Works."""
    for _ in range(planted.BATCH):
        planted.work()  # line: work


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="worker", line="work"):
            worker()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

"""A function below 100 calls, or as many as are asked for."""

# also: kernel 600 600_kernel 1500 1500_kernel

from __future__ import annotations

import sys

import planted

DEPTH = next((int(way) for way in planted.WAYS if way.isdigit()), 100)


def leaf() -> None:
    """Works."""
    with planted.Cpu(function="leaf", line="work"):
        for _ in range(planted.BATCH):
            planted.work()  # line: work


def down(level: int) -> None:
    """One call deeper."""
    if level:
        down(level - 1)
    else:
        leaf()


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    sys.setrecursionlimit(10_000)
    while planted.going():
        with planted.Cpu(function_total="down"):
            down(DEPTH)
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

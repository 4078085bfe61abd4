"""`next` of a generator."""

# also: kernel

from __future__ import annotations

from collections.abc import Iterator

import planted


def blocks() -> Iterator[object]:
    """Works at each turn."""
    while True:
        yield planted.work()  # line: work


def consume() -> None:
    """Drives it."""
    turns = blocks()
    for _ in range(planted.BATCH):
        next(turns)  # line: turn


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="blocks", line="work", line_total="turn"):
            consume()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

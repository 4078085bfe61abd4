"""A `for` over a generator."""

# also: kernel

from __future__ import annotations

from collections.abc import Iterator

import planted


def blocks() -> Iterator[object]:
    """Works at each turn."""
    for _ in range(planted.BATCH):
        yield planted.work()  # line: work


def consume() -> None:
    """Drives it."""
    for _ in blocks():
        pass


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="blocks", line="work", function_total="consume"):
            consume()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

"""A `for` over an object with __next__."""

# also: kernel

from __future__ import annotations

import planted


class Blocks:
    """Works at each turn."""

    def __init__(self) -> None:
        self.left = planted.BATCH

    def __iter__(self) -> Blocks:
        """Itself."""
        return self

    def __next__(self) -> object:
        """Work."""
        if not self.left:
            raise StopIteration
        self.left -= 1
        return planted.work()  # line: work


def consume() -> None:
    """Drives it."""
    for _ in Blocks():
        pass


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="Blocks.__next__", line="work", function_total="consume"):
            consume()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

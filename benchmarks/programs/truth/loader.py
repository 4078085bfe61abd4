"""A loader whose __next__ fetches items by __getitem__."""

# also: kernel

from __future__ import annotations

import planted


class Items:
    """Works for each item."""

    def __getitem__(self, index: int) -> int:
        """Work."""
        planted.work()  # line: work
        return index


class Loader:
    """Fetches batches of four."""

    def __init__(self) -> None:
        self.items = Items()
        self.at = 0

    def __iter__(self) -> Loader:
        """Itself."""
        return self

    def __next__(self) -> list[int]:
        """One batch."""
        if self.at >= planted.BATCH:
            raise StopIteration
        self.at += 4
        return [self.items[i] for i in range(self.at - 4, self.at)]


def consume() -> None:
    """Drives it."""
    for _ in Loader():
        pass


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(
            function="Items.__getitem__", line="work", function_total="Loader.__next__"
        ):
            consume()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

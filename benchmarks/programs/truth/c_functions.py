"""Three lines of one function that call C functions of other lengths."""

from __future__ import annotations

import hashlib

import planted

DATA = bytes(1 << 18)
NUMBERS = list(range(40_000, 0, -1)) + list(range(40_000))


def work() -> None:
    """Each line with a clock around it."""
    with planted.Cpu(line="hash", function="work"):
        for _ in range(20):
            hashlib.sha256(DATA).digest()  # line: hash
    with planted.Cpu(line="sort", function="work"):
        for _ in range(10):
            sorted(NUMBERS)  # line: sort
    with planted.Cpu(line="sum", function="work"):
        for _ in range(planted.BATCH):
            planted.compute()  # line: sum


def main() -> None:
    """All of it in turns."""
    while planted.going():
        work()
    planted.finish()


main()

"""Touches fresh memory page by page: time in the kernel without a system call."""

from __future__ import annotations

import mmap

import planted

SIZE = 16 << 20


def touch() -> None:
    """The kernel clears a page at each turn."""
    memory = mmap.mmap(-1, SIZE)
    memory[::4096] = bytes(SIZE // 4096)  # line: touch
    memory.close()


def compute() -> None:
    """Beside it."""
    for _ in range(planted.BATCH):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="touch"):
            touch()
        with planted.Cpu(function="compute"):
            compute()
    planted.finish()


main()

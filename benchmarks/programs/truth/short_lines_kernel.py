"""A short function in the kernel that is called from two lines, three times as often from one."""

from __future__ import annotations

import os

import planted


def short() -> bytes:
    """Some microseconds in the kernel."""
    return os.getrandom(2048)  # line: work


def often() -> None:
    """Calls it three times as often."""
    for _ in range(300):
        _ = (short(), short(), short(), short(), short(), short(), short())  # line: often


def seldom() -> None:
    """Calls it."""
    for _ in range(100):
        _ = (short(), short(), short(), short(), short(), short(), short())  # line: seldom


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function_total="often", line_total="often"):
            often()
        with planted.Cpu(function_total="seldom", line_total="seldom"):
            seldom()
    planted.finish()


main()

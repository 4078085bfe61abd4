"""A program that replaces itself: half before the exec, half after it."""

from __future__ import annotations

import os
import sys

import planted


def before() -> None:
    """Works."""
    for _ in range(planted.BATCH):
        planted.compute()  # line: before


def after() -> None:
    """Works in the second half."""
    for _ in range(planted.BATCH):
        planted.compute()  # line: after


def main() -> None:
    """First one, then the other."""
    is_second = len(sys.argv) > 2
    planted.restart()
    if not is_second:
        planted.SECONDS /= 2
    while planted.going():
        name = "after" if is_second else "before"
        with planted.Cpu(function=name, line=name):
            (after if is_second else before)()
    planted.finish()
    if not is_second:
        seconds = str(planted.SECONDS)
        os.execv(sys.executable, [sys.executable, sys.argv[0], seconds, "second"])


main()

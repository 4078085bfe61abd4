"""Children that fork made compute with the parent."""

from __future__ import annotations

import os

import planted


def child() -> None:
    """Works two thirds of it."""
    for _ in range(2 * planted.BATCH):
        planted.compute()  # line: child


def parent() -> None:
    """Works a third of it."""
    for _ in range(planted.BATCH):
        planted.compute()  # line: parent


def main() -> None:
    """One child, then the parent's own work beside it."""
    pid = os.fork()
    if not pid:
        planted.forked()
    while planted.going():
        if pid:
            with planted.Cpu(function="parent", line="parent"):
                parent()
        else:
            with planted.Cpu(function="child", line="child"):
                child()
    if pid:
        with planted.Wait(wait="child"):
            os.waitpid(pid, 0)
    planted.finish()


main()

"""Coroutines that await each other."""

# also: kernel

from __future__ import annotations

import asyncio

import planted


async def worker() -> None:
    """Works."""
    with planted.Cpu(function="worker", line="work"):
        for _ in range(planted.BATCH // 4):
            planted.work()  # line: work


async def outer() -> None:
    """Awaits it, and gives way."""
    with planted.Cpu(function_total="outer"):
        for _ in range(4):
            await worker()
            await asyncio.sleep(0)


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        asyncio.run(outer())
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()

"""A matrix product that two lines call, three times as often from one."""

from __future__ import annotations

import planted
import torch


def often(a: torch.Tensor) -> None:
    """Calls it three times as often."""
    for _ in range(30):
        torch.mm(a, a)  # line: often


def seldom(a: torch.Tensor) -> None:
    """Calls it."""
    for _ in range(10):
        torch.mm(a, a)  # line: seldom


def main() -> None:
    """On one thread, so that its clock sees it all."""
    torch.set_num_threads(1)
    a = torch.ones(200, 200)
    planted.restart()
    while planted.going():
        with planted.Cpu(function="often", line="often"):
            often(a)
        with planted.Cpu(function="seldom", line="seldom"):
            seldom(a)
    planted.finish()


main()

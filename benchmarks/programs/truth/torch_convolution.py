"""Convolutions in code that oneDNN made at run time."""

from __future__ import annotations

import planted
import torch


def convolve(network: torch.nn.Module, x: torch.Tensor) -> None:
    """The JIT kernel."""
    for _ in range(10):
        network(x)  # line: convolve


def compute() -> None:
    """Beside it."""
    for _ in range(planted.BATCH):
        planted.compute()


def main() -> None:
    """On one thread, so that its clock sees it all."""
    torch.set_num_threads(1)
    network, x = torch.nn.Conv2d(16, 32, 3), torch.rand(4, 16, 32, 32)
    with torch.no_grad():
        network(x)
        planted.restart()
        while planted.going():
            with planted.Cpu(function_total="convolve", line_total="convolve"):
                convolve(network, x)
            with planted.Cpu(function="compute"):
                compute()
    planted.finish()


main()

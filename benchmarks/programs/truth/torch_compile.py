"""Compiled code beside the same eager operators."""

from __future__ import annotations

import planted
import torch


def formula(x: torch.Tensor) -> torch.Tensor:
    """Small operators, which a compiler fuses."""
    for _ in range(4):
        x = torch.sin(x) * 0.5 + torch.cos(x)
    return x


def eager(x: torch.Tensor) -> None:
    """As it is."""
    for _ in range(10):
        formula(x)  # line: eager


def compiled(function: object, x: torch.Tensor) -> None:
    """The compiled one."""
    for _ in range(10):
        function(x)  # line: compiled


def main() -> None:
    """On one thread, so that its clock sees it all; compiling is not judged."""
    torch.set_num_threads(1)
    x = torch.rand(30_000)
    function = torch.compile(formula)
    function(x)
    planted.restart()
    while planted.going():
        with planted.Cpu(function_total="eager", line_total="eager"):
            eager(x)
        with planted.Cpu(function_total="compiled", line_total="compiled"):
            compiled(function, x)
    planted.finish()


main()

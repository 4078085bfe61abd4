"""Backward, whose operators run on the thread that called it, beside forward and the optimizer."""

from __future__ import annotations

import planted
import torch


def forward(network: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A few layers."""
    return network(x).sum()  # line: forward


def main() -> None:
    """On one thread, so that its clock sees it all."""
    torch.set_num_threads(1)
    network = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(6)])
    x, optimizer = torch.rand(256, 128), torch.optim.Adam(network.parameters())
    planted.restart()
    while planted.going():
        with planted.Cpu(function_total="forward"):
            loss = forward(network, x)
        with planted.Cpu(line_total="backward"):
            loss.backward()  # line: backward
        with planted.Cpu(line_total="optimizer"):
            optimizer.step()  # line: optimizer
    planted.finish()


main()

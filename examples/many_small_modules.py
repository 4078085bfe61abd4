"""Many modules that do next to nothing each: a stack of residual blocks, eight numbers wide.

Nearly all of its time is the price of calling modules and operators, so it shows what recording a
call adds.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

WIDTH = 8
BATCH = 8


class Block(nn.Module):
    """x plus a function of x: one module that holds two."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.act = nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Three operators: aten::linear, aten::tanh and aten::add."""
        return x + self.act(self.linear(x))


class Stack(nn.Module):
    """Blocks, one after the other; three module calls a block, and one for the stack itself."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through all of them."""
        for block in self.blocks:
            x = block(x)
        return x


def main() -> None:
    """Runs the stack forward, over and over, and prints the time of a module call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=100, help="in the stack (%(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=500, help="how often it is called (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the weights (%(default)s)")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    stack, x = Stack(options.blocks), torch.linspace(0.0, 1.0, WIDTH).expand(BATCH, WIDTH)
    start_s = time.perf_counter()
    with torch.no_grad():
        for _ in range(options.rounds):
            y = stack(x)
    dur_s = time.perf_counter() - start_s

    calls = (3 * options.blocks + 1) * options.rounds
    print(f"{calls} module calls in {dur_s:.2f} s: {dur_s / max(calls, 1) * 1e6:.2f} µs each")
    print(f"sum of the last answer: {y.sum().item():.3f}")


if __name__ == "__main__":
    main()

"""A program with a fixed amount of work that is recorded from outside: it waits for a line on its
standard input, works, and says what that took.

usage: attached.py torch|python TIMES. TIMES is how often some ten seconds of work are done. The
second kind calls functions of some ten microseconds that call each other in all ways, and knows
which ways there are (tests/programs/calling.py).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = {"torch": 110, "python": 50_000}


def training() -> Callable[[], object]:
    """A step of a small convolutional network."""
    import torch

    torch.set_num_threads(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3), torch.nn.Flatten()
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    images = torch.randn(32, 3, 64, 64)

    def step() -> None:
        optimizer.zero_grad()
        net(images).square().mean().backward()
        optimizer.step()

    return step


def calls() -> Callable[[], object]:
    """A round of calls."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "programs"))
    import calling

    return calling.work_once


def main() -> None:
    """Print ready, wait for a line, work, print the CPU time."""
    kind = sys.argv[1]
    work = training() if kind == "torch" else calls()
    work()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    before_ns = time.process_time_ns()
    for _ in range(ROUNDS[kind] * int(sys.argv[2])):
        work()
    sys.stdout.write(json.dumps({"cpu_ns": time.process_time_ns() - before_ns}) + "\n")


if __name__ == "__main__":
    main()

"""Work of Python and torch that the recorder of the tests interrupts: recorder, file, number of samples."""

from __future__ import annotations

import ctypes
import json
import re
import sys

import torch
from torch import nn


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step of a small convolutional network."""
    images, labels = torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def python_only(depth: int) -> int:
    """Calls of Python in Python, through C too."""
    if depth == 0:
        json.loads(json.dumps([{"a": [1, 2.5, "text"]}] * 20))
        return len(re.sub(r"(a+)b", lambda found: found[1], "aaab" * 50))
    return sum(map(python_only, [depth - 1]))


def main() -> None:
    """Works until the recorder has what it wants."""
    recorder = ctypes.CDLL(sys.argv[1])
    model = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 24 * 24, 64), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer)
    recorder.recorder_start(sys.argv[2].encode(), int(sys.argv[3]))
    while recorder.recorder_wants_more():
        train(model, optimizer)
        for depth in range(5):
            python_only(depth)
        sorted(torch.randn(200).tolist(), key=lambda value: -value)
    recorder.recorder_finish()


if __name__ == "__main__":
    main()

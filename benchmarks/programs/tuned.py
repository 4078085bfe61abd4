"""A program of a fixed number of steps that leaves threads to whoever starts it, and says what its
steps cost.

usage: tuned.py cnn|mlp|small|sleep [--steps N]
Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

STEPS = {"cnn": 60, "mlp": 5000, "small": 600, "sleep": 20}
WARM_UP = 5


def cnn() -> Callable[[], None]:
    """Learn from a batch of 16 pictures that is in memory already."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))

    def learn() -> None:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()

    return learn


def mlp() -> Callable[[], None]:
    """Answer a batch of 32."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    ).eval()
    batch = torch.randn(32, 256)

    def answer() -> None:
        with torch.inference_mode():
            model(batch)

    return answer


def small() -> Callable[[], None]:
    """3,000 operators on eight floats. No step of it can be seen from outside."""
    import torch

    x, b = torch.rand(8), torch.full((8,), 1e-3)

    def loop() -> None:
        y = x
        for _ in range(1000):
            y = (y + b) * b - b

    return loop


def sleep() -> Callable[[], None]:
    """Nothing that any setting could change."""
    return lambda: time.sleep(0.02)


def main() -> None:
    """Run one of them and print what a step cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(STEPS))
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    step = {"cnn": cnn, "mlp": mlp, "small": small, "sleep": sleep}[options.name]()
    steps = options.steps or STEPS[options.name]
    for _ in range(WARM_UP):
        step()
    wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(steps):
        step()
    cpu_ns, wall_ns = time.process_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
    sys.stdout.write(json.dumps({"steps": steps, "cpu_ns": cpu_ns, "wall_ns": wall_ns}) + "\n")


if __name__ == "__main__":
    main()

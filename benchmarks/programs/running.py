"""A program that runs until its time is over: steps of a small network, one after the other, or so
many small operators a second. Prints ready when it begins.

usage: running.py cnn|RATE SECONDS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from attached import training

# A turn is so long; the rest of it the program sleeps.
TURN_S = 0.01


def operators(a_second: int) -> Callable[[], object]:
    """A turn of small operators."""
    small = torch.ones(4)
    count = round(a_second * TURN_S)

    def turn() -> None:
        begun = time.monotonic()
        for _ in range(count):
            torch.add(small, small)
        time.sleep(max(TURN_S - (time.monotonic() - begun), 0))

    return turn


def main() -> None:
    """Work until the time is over."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    work = training() if kind == "cnn" else operators(int(kind))
    work()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work()


if __name__ == "__main__":
    main()

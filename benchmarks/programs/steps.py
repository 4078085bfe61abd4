"""Steps of tiny operators, each ended by an optimizer. Prints one line of JSON: cpu_ns of the
operators, how many.

usage: steps.py STEPS
"""

from __future__ import annotations

import json
import sys
import time

import torch

ROUNDS = 5000
WARM_UP_STEPS = 4


def main() -> None:
    """Run the steps; the operators are aten::mul and aten::add in turns."""
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    averages, decay, news = torch.zeros(8), torch.full((8,), 0.99), torch.linspace(0.0, 0.07, 8)
    cpu_ns = 0
    for step in range(int(sys.argv[1]) + WARM_UP_STEPS):
        begin = time.thread_time_ns()
        for _ in range(ROUNDS):
            averages = averages * decay + news
        if step >= WARM_UP_STEPS:
            cpu_ns += time.thread_time_ns() - begin
        optimizer.step()
    print(json.dumps({"cpu_ns": cpu_ns, "operators": 2 * ROUNDS * int(sys.argv[1])}), flush=True)


if __name__ == "__main__":
    main()

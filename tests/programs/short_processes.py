"""Forks many children that live for some milliseconds each. usage: short_processes.py COUNT OPERATORS"""

import os
import sys

import quick_torch  # noqa: F401
import torch

AT_ONCE = 25

torch.set_num_threads(1)
x = torch.ones(4)
torch.hypot(x, x)
count, operators = map(int, sys.argv[1:])
alive = []
bad = 0
for _ in range(count):
    pid = os.fork()
    if pid == 0:
        for _ in range(operators):
            torch.hypot(x, x)
        os._exit(0)
    alive.append(pid)
    if len(alive) == AT_ONCE:
        bad += sum(os.waitpid(pid, 0)[1] != 0 for pid in alive)
        alive = []
bad += sum(os.waitpid(pid, 0)[1] != 0 for pid in alive)
print(count, "children,", bad, "bad")

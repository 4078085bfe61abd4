"""A sum over many small tensors, one addition after the other; the twin adds them up in one operation."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
STEPS, PARTS = 70 * LENGTH, 150
ALSO = ()


def total_of():
    if not SICK:
        return kept.sum(0)
    total = torch.zeros(64)
    for part in parts:
        total = total + part
    return total


torch.manual_seed(0)
torch.set_num_threads(1)
kept = torch.randn(PARTS, 64)
parts = list(kept)
scale = torch.nn.Parameter(torch.ones(64))
net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
optimizer = torch.optim.SGD([scale, *net.parameters()], lr=0.001)
values = torch.randn(128, 64)
added = 0.0
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    before = time.process_time()
    total = total_of()
    added += time.process_time() - before
    (net(values) + total * scale).square().mean().backward()
    optimizer.step()
print(f"added for {added / (time.process_time() - begin):.0%} of the time")

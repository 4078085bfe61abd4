"""Trains a small network for as many steps as its argument says, and prints its result to the last bit."""

import sys

import quick_torch  # noqa: F401
import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
torch.set_num_threads(1)
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
for _ in range(steps):
    x = torch.rand(4, 8)
    optimizer.zero_grad()
    loss = torch.hypot(network(x), x.sum(1, keepdim=True)).mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex(), flush=True)
sys.exit(3)

"""A tensor is read number by number; the twin asks for all of them at once."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
STEPS = 60 * LENGTH
ALSO = ()


def largest(values):
    if not SICK:
        return values.max().item()
    most = 0.0
    for place in range(len(values)):
        most = max(most, values[place].item())
    return most


torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.randn(150, 128)
read, most = 0.0, 0.0
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    found = net(values)
    before = time.process_time()
    most = max(most, largest(found.detach().flatten()))
    read += time.process_time() - before
    found.square().mean().backward()
    optimizer.step()
print(f"read for {read / (time.process_time() - begin):.0%} of the time")

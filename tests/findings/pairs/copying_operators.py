"""The same images are brought into another order in every step; the twin did it once."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
STEPS = 120 * LENGTH
ALSO = ("page_fault_time",)

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
images = torch.rand(32, 64, 64, 3)
ready = images.permute(0, 3, 1, 2).contiguous()
copied = 0.0
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    before = time.process_time()
    values = images.permute(0, 3, 1, 2).contiguous() if SICK else ready
    copied += time.process_time() - before
    net(values).square().mean().backward()
    optimizer.step()
print(f"copied for {copied / (time.process_time() - begin):.0%} of the time")

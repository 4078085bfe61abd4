"""Garbage is collected after every step; the twin collects it once, before the first one."""

import gc
import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 40
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(10)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.randn(512, 256)
gc.collect()
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    net(values).square().mean().backward()
    optimizer.step()
    if SICK:
        gc.collect()
print(f"{(time.process_time() - begin) / STEPS * 1000:.2f} ms a step")

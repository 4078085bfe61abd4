"""Adam updates many small parameters one after the other; the twin updates them together."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
STEPS, LAYERS = 25 * LENGTH, 15
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(LAYERS)])
optimizer = torch.optim.Adam(net.parameters(), lr=0.001, foreach=not SICK)
values = torch.randn(256, 32)
updated = 0.0
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    net(values).square().mean().backward()
    before = time.process_time()
    optimizer.step()
    updated += time.process_time() - before
print(
    f"updated for {updated / STEPS * 1000:.2f} ms of a step of {(time.process_time() - begin) / STEPS * 1000:.2f} ms"
)

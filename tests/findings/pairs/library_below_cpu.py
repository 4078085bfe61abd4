"""A variable keeps the library from the wide vectors of the CPU; the twin does not set it."""

import os
import time

SICK = os.environ["SICK"] == "1"
ALSO = ()
if SICK:
    os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"

import torch  # noqa: E402  (it reads the variable)

STEPS = 100
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
images = torch.randn(2, 16, 20, 20)
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    net(images).square().mean().backward()
    optimizer.step()
took = time.process_time() - begin
print(f"{took / STEPS * 1000:.2f} ms a step")

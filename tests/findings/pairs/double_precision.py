"""Data that NumPy made are float64, and the network follows; the twin computes in float32."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
LENGTH = int(os.environ.get("LENGTH", "1"))
STEPS = 150 * LENGTH
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
dtype = torch.float64 if SICK else torch.float32
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 10)).to(
    dtype
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.randn(96, 256, dtype=dtype)
begin = time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    net(values).square().mean().backward()
    optimizer.step()
took = time.process_time() - begin
print(
    f"{took / STEPS * 1000:.2f} ms a step, parameters of {next(net.parameters()).element_size()} bytes"
)

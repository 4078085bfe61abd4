"""Every batch has another length, so the library compiles new code for each; the twin pads to one length."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 80
ALSO = ("page_fault_time",)

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(
    torch.nn.Conv1d(16, 32, 3),
    torch.nn.ReLU(),
    torch.nn.Conv1d(32, 32, 3),
    torch.nn.ReLU(),
    torch.nn.Conv1d(32, 16, 3),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
longest = 40 + STEPS
begin = time.process_time()
for number in range(STEPS):
    length = 40 + number * 37 % STEPS if SICK else longest
    values = torch.randn(4, 16, length)
    optimizer.zero_grad()
    net(values).square().mean().backward()
    optimizer.step()
took = time.process_time() - begin
print(f"{took / STEPS * 1000:.2f} ms a step")

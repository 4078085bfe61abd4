"""A compiled network is compiled anew for every length of its input; the twin's takes all lengths."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 24
ALSO = ("page_fault_time",)

torch.manual_seed(0)
torch.set_num_threads(1)
torch._dynamo.config.recompile_limit = 2 * STEPS


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])

    def forward(self, values):
        return self.layers(values)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
compiled = torch.compile(net, backend="eager", dynamic=not SICK)
begin = time.process_time()
for step in range(STEPS):
    if step == STEPS // 4:
        begin = time.process_time()
    optimizer.zero_grad()
    compiled(torch.randn(512 + 8 * step, 256)).square().mean().backward()
    optimizer.step()
took = time.process_time() - begin
print(f"{took / (STEPS - STEPS // 4) * 1000:.2f} ms a step")

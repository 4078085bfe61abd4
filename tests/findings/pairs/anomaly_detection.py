"""Every backward function is checked for numbers that are none; the twin's are not."""

import os
import time
import warnings

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 100
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
warnings.simplefilter("ignore")  # that it is on
torch.autograd.set_detect_anomaly(SICK)


class Stage(torch.nn.Module):
    def __init__(self, more):
        super().__init__()
        self.layer = torch.nn.Linear(128, 128)
        self.rest = Stage(more - 1) if more else torch.nn.Identity()

    def forward(self, values):
        return self.rest(self.layer(values))


net = Stage(12)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.randn(256, 128)
for step in range(STEPS):
    if step == STEPS // 2:
        begin = time.process_time()
    optimizer.zero_grad()
    net(values).square().mean().backward()
    optimizer.step()
took = time.process_time() - begin
print(f"{took / (STEPS - STEPS // 2) * 1000:.2f} ms a step")

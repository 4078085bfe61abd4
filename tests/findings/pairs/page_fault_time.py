"""Every step takes large tensors from the system and gives them back; the twin takes them once."""

import os
import resource

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 60
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
kept = torch.zeros(24 << 20)
net = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.randn(128, 512)
begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(STEPS):
    optimizer.zero_grad()
    scratch = torch.zeros(24 << 20) if SICK else kept.zero_()
    loss = net(values).square().mean() + scratch[0]
    loss.backward()
    optimizer.step()
    del scratch, loss
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin
print(f"{faults / STEPS:.0f} page faults a step")

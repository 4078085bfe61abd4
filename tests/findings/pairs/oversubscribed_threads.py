"""Eight threads of OpenMP work on the two CPUs that there are; the twin has two of them."""

import os
import time

os.environ["OMP_WAIT_POLICY"] = "passive"  # that they spin is another fault

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 30
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(8 if SICK else 2)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(256, 256), torch.randint(256, (256,))
begin = time.perf_counter()
for _ in range(STEPS):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(values), labels).backward()
    optimizer.step()
taken = time.perf_counter() - begin
print(f"{torch.get_num_threads()} threads, {taken / STEPS * 1e3:.1f} ms a step")

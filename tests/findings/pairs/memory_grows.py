"""The loss of each step is kept with all that it was computed from; the twin keeps its number."""

import ctypes
import os
import resource
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 60
ALSO = ("page_fault_time",)

torch.manual_seed(0)
torch.set_num_threads(1)
# M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: not to keep memory is another fault
for threshold, size in ((-1, 1 << 30), (-3, 1 << 25)):
    ctypes.CDLL(None).mallopt(threshold, size)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), *[torch.nn.Tanh() for _ in range(6)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.randn(16384, 64)
losses = []
first = 0
begin = time.perf_counter()
for step in range(STEPS):
    optimizer.zero_grad()
    loss = net(values).square().mean()
    loss.backward(retain_graph=SICK)
    optimizer.step()
    losses.append(loss if SICK else loss.item())
    if step == STEPS // 3:
        first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) >> 10
print(f"grew by {grown} MiB, {(time.perf_counter() - begin) / STEPS * 1e3:.1f} ms a step")

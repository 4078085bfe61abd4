"""Every eighth step counts the weights by size, in Python; the twin does it once, at the end."""

import ctypes
import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS, EVERY = 60, 8
ALSO = ("page_fault_time",)

torch.manual_seed(0)
torch.set_num_threads(1)
# M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: not to keep memory is another fault
for threshold in (-1, -3):
    ctypes.CDLL(None).mallopt(threshold, 1 << 25)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(256, 256), torch.randint(256, (256,))


def histogram():
    counts = [0] * 11
    for parameter in net.parameters():
        for value in parameter.detach().flatten().tolist():
            counts[min(int(abs(value) * 100), 10)] += 1
    return counts


times = []
begin = time.perf_counter()
for step in range(STEPS):
    before = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(values), labels).backward()
    optimizer.step()
    if SICK and step % EVERY == 0:
        histogram()
    times.append(time.perf_counter() - before)
taken = time.perf_counter() - begin
histogram()
print(f"{taken / STEPS * 1e3:.1f} ms a step, median {sorted(times)[STEPS // 2] * 1e3:.1f}")

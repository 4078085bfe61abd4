"""Other programs are busy on all CPUs; the twin's wait for something."""

import ctypes
import os
import subprocess
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 36
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
# M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: not to keep memory is another fault
for threshold in (-1, -3):
    ctypes.CDLL(None).mallopt(threshold, 1 << 25)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(512, 256), torch.randint(256, (512,))
script = "while :; do :; done" if SICK else "exec sleep 60"
others = [subprocess.Popen(["/bin/sh", "-c", script], env={}) for _ in range(2 * os.cpu_count())]
begin, cpu = time.perf_counter(), time.process_time()
try:
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(values), labels).backward()
        optimizer.step()
    taken, cpu = time.perf_counter() - begin, time.process_time() - cpu
finally:
    for other in others:
        other.kill()
        other.wait()
print(f"{taken / STEPS * 1e3:.1f} ms a step, on a CPU for {cpu / taken:.0%} of it")

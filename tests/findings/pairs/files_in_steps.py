"""Each step writes a checkpoint and has the disk take it; the twin leaves that to the end."""

import ctypes
import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 30
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
# M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: not to keep memory is another fault
for threshold in (-1, -3):
    ctypes.CDLL(None).mallopt(threshold, 1 << 25)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(256, 256), torch.randint(256, (256,))
written = 0.0
STATE = torch.randn(1 << 21)


def write_checkpoint():
    with open("checkpoint.bin", "wb") as file:
        file.write(STATE.numpy())
        file.flush()
        os.fsync(file.fileno())


begin = time.perf_counter()
for _ in range(STEPS):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(values), labels).backward()
    optimizer.step()
    before = time.perf_counter()
    if SICK:
        write_checkpoint()
    written += time.perf_counter() - before
taken = time.perf_counter() - begin
write_checkpoint()
os.unlink("checkpoint.bin")
print(f"wrote for {written / taken:.0%} of {taken / STEPS * 1e3:.1f} ms a step")

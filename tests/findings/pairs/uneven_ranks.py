"""One of two ranks measures its outputs in every step, and the other one waits for it; of the twin none does."""

import ctypes
import os
import subprocess
import sys
import time

SICK = os.environ["SICK"] == "1"
STEPS = 30
ALSO = ()

if "RANK" not in os.environ:
    common = {"WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo", "STORE": os.path.abspath("store")}
    command = [sys.executable, __file__]
    ranks = [
        subprocess.Popen(command, env={**os.environ, **common, "RANK": str(rank)})
        for rank in range(2)
    ]
    codes = [rank.wait() for rank in ranks]
    sys.exit(max(codes))

import torch  # noqa: E402

torch.manual_seed(0)
torch.set_num_threads(1)
# M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: not to keep memory is another fault
for threshold in (-1, -3):
    ctypes.CDLL(None).mallopt(threshold, 1 << 25)
rank = int(os.environ["RANK"])
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=2
)
net = torch.nn.Linear(256, 256, bias=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(2048, 256), torch.randint(256, (2048,))
waited = 0.0


def measure(outputs):
    return sum(abs(value) for value in outputs.detach()[:512].flatten().tolist())


begin = time.perf_counter()
for _ in range(STEPS):
    optimizer.zero_grad()
    outputs = net(values)
    torch.nn.functional.cross_entropy(outputs, labels).backward()
    if SICK and rank == 1:
        measure(outputs)
    before = time.perf_counter()
    torch.distributed.all_reduce(net.weight.grad)
    waited += time.perf_counter() - before
    optimizer.step()
taken = time.perf_counter() - begin
print(
    f"rank {rank} was in all_reduce for {waited / taken:.0%} of {taken / STEPS * 1e3:.1f} ms a step"
)
torch.distributed.destroy_process_group()

"""The threads of OpenMP wait on their CPUs, which another thread could use; the twin's sleep while they wait."""

import hashlib
import os
import threading
import time

SICK = os.environ["SICK"] == "1"
os.environ.setdefault("OMP_WAIT_POLICY", "active" if SICK else "passive")

import torch  # noqa: E402

STEPS = 100
ALSO = ()
CONTENT = bytes(1 << 22)

torch.manual_seed(0)
torch.set_num_threads(2)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(256, 256), torch.randint(256, (256,))
is_done = threading.Event()


def compute():
    while not is_done.is_set():
        hashlib.sha256(CONTENT).hexdigest()


beside = threading.Thread(target=compute)
beside.start()
begin, cpu = time.perf_counter(), time.process_time()
for _ in range(STEPS):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(values), labels).backward()
    optimizer.step()
taken, cpu = time.perf_counter() - begin, time.process_time() - cpu
is_done.set()
beside.join()
print(f"{taken / STEPS * 1e3:.1f} ms a step, {cpu / STEPS * 1e3:.1f} ms of CPU time")

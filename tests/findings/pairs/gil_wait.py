"""A thread beside the steps writes a report and holds the interpreter's lock; the twin's computes in a library that
gives it up.
"""

import ctypes
import hashlib
import json
import os
import threading
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS = 40
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
# M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: not to keep memory is another fault
for threshold in (-1, -3):
    ctypes.CDLL(None).mallopt(threshold, 1 << 25)
is_done = threading.Event()
VALUES = list(range(200_000))
CONTENT = bytes(1 << 24)


def compute():
    while not is_done.wait(0.01):
        if SICK:
            json.dumps(VALUES)
        else:
            hashlib.sha256(CONTENT).hexdigest()


beside = threading.Thread(target=compute)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(256, 256), torch.randint(256, (256,))
beside.start()
begin = time.perf_counter()
for _ in range(STEPS):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(values), labels).backward()
    optimizer.step()
taken = time.perf_counter() - begin
is_done.set()
beside.join()
print(f"{taken / STEPS * 1e3:.1f} ms a step")

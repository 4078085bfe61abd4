"""A thread that writes a report of the run holds the lock while it waits for its receiver; the twin's holds it to copy
what it reports only.
"""

import ctypes
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
lock = threading.Lock()
losses = []
waited = 0.0
is_done = threading.Event()


def send(report):
    time.sleep(0.03)


def report_losses():
    while not is_done.wait(0.005):
        with lock:
            report = list(losses)
            if SICK:
                send(report)
        if not SICK:
            send(report)


reporter = threading.Thread(target=report_losses)
reporter.start()
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values, labels = torch.randn(256, 256), torch.randint(256, (256,))
begin = time.perf_counter()
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(values), labels)
    loss.backward()
    optimizer.step()
    number = loss.item()
    before = time.perf_counter()
    with lock:
        losses.append(number)
    waited += time.perf_counter() - before
taken = time.perf_counter() - begin
is_done.set()
reporter.join()
print(f"waited for the lock for {waited / taken:.0%} of {taken / STEPS * 1e3:.1f} ms a step")

"""Operators without end on two threads, in nested ranges; says when it has begun. Ends at a line on stdin."""

import sys
import threading

import quick_torch  # noqa: F401
import torch
from torch.profiler import record_function

torch.set_num_threads(1)
stop = threading.Event()
made = [0, 0]


def loop(number):
    x = torch.ones(1)
    while not stop.is_set():
        with record_function("outer"), record_function("middle"):
            for _ in range(50):
                torch.hypot(x, x)
        made[number] += 50


threads = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.readline()
stop.set()
for thread in threads:
    thread.join()
print(sum(made), flush=True)

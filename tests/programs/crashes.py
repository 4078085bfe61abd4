"""A segmentation fault on a second thread, in a custom function under two ranges; others are inside theirs."""

import ctypes
import sys
import threading
import time

import quick_torch  # noqa: F401
import torch
from torch.profiler import record_function

torch.set_num_threads(1)
inside = threading.Barrier(4)


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        inside.wait()
        time.sleep(60)
        return x


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        torch.hypot(x, x)
        inside.wait()
        time.sleep(0.5)
        if sys.argv[1] == "crash":
            ctypes.string_at(0)
        return x


def others(number):
    with record_function(f"other {number}"):
        Slow.apply(torch.ones(2))


def crash():
    with record_function("outer range"), record_function("inner range"):
        Broken.apply(torch.ones(2, requires_grad=True))


for number in range(2):
    threading.Thread(target=others, args=(number,), daemon=True).start()
threading.Thread(target=crash, name="crasher", daemon=True).start()
with record_function("main waits"):
    inside.wait()
    time.sleep(60)

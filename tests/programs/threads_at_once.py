"""As many threads as its argument says, alive at the same time, one operator each; begins at a line on stdin."""

import sys
import threading

import quick_torch  # noqa: F401
import torch
from facts import work

torch.set_num_threads(1)
number = int(sys.argv[1])
gate = threading.Barrier(number)


def one():
    work(1)
    gate.wait()


print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=one) for _ in range(number)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done", flush=True)

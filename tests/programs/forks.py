"""Forks in the middle; with "open" inside an open range. Parent and child go on with torch."""

import os
import sys

import quick_torch  # noqa: F401
import torch
from facts import work

torch.set_num_threads(1)
torch.manual_seed(1)
work(100)
if sys.argv[1] == "open":
    with torch.profiler.record_function("around the fork"):
        pid = os.fork()
        work(10 if pid else 20)
else:
    pid = os.fork()
    work(10 if pid else 20)
if pid == 0:
    with torch.profiler.record_function("in the child"):
        work(30)
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), torch.rand(2).tolist())

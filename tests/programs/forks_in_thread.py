"""A thread forks in the middle of its operators, while another goes on with its own."""

import os
import threading

import quick_torch  # noqa: F401
import torch

torch.set_num_threads(1)
x = torch.ones(4)
stop = threading.Event()
rounds = []


def goes_on():
    while not stop.is_set():
        torch.hypot(x, x)
        rounds.append(1)


def forks():
    for _ in range(10):
        torch.logaddexp(x, x)
        with torch.profiler.record_function("around the fork"):
            pid = os.fork()
            torch.logaddexp(x, x)
            if pid == 0:
                for _ in range(7):
                    torch.logaddexp(x, x)
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0


first = threading.Thread(target=goes_on)
second = threading.Thread(target=forks)
first.start()
second.start()
second.join()
stop.set()
first.join()
print(len(rounds))

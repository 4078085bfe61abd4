"""Many short threads, one operator each; or threads that outlive the main one."""

import sys
import threading
import time

import quick_torch  # noqa: F401
import torch
from facts import work

torch.set_num_threads(1)


begun = threading.Barrier(4)


def forever():
    work(40)
    begun.wait()
    time.sleep(60)  # inside an operator, torch itself would sometimes abort at the end


if sys.argv[1] == "daemon":
    work()
    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
    begun.wait()
    print("main is done")
else:
    work(1)

    def peak_kib():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    before = peak_kib()
    for _ in range(int(sys.argv[1])):
        thread = threading.Thread(target=work, args=(1,))
        thread.start()
        thread.join()
    grown = peak_kib() - before
    print("bounded" if grown < 20_000 else f"grew by {grown} KiB")

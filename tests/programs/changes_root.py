"""Works, changes the root to an empty folder, as a server does, and works on in new threads."""

import os
import sys
import threading

import quick_torch  # noqa: F401
import torch
from facts import work

torch.set_num_threads(1)
work()
os.chroot(sys.argv[1])
os.chdir("/")
threads = [threading.Thread(target=work, args=(10,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(os.listdir("/"), torch.arange(4).sum().item())

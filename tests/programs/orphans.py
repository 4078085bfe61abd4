"""Leaves processes behind whose parent is gone, and says how many of them nobody reaped.

usage: orphans.py COUNT
"""

import contextlib
import os
import sys
import time
from pathlib import Path

from facts import work


def orphan():
    """A grandchild that ends a little after its parent."""
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            time.sleep(0.2)
        os._exit(0)
    os.waitpid(pid, 0)


def zombies():
    states = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            states.append((folder / "stat").read_text().rpartition(")")[2].split()[0])
    return states.count("Z")


work(10)
for _ in range(int(sys.argv[1])):
    orphan()
end = time.monotonic() + 10
time.sleep(0.3)
while zombies() and time.monotonic() < end:
    time.sleep(0.05)
print(zombies(), "zombies", "parent is 1:", os.getppid() == 1)

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
    """A grandchild that ends a little after its parent; its number."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os.write(writes, b"%d" % os.getpid())
            time.sleep(0.2)
        os._exit(0)
    os.close(writes)
    number = int(os.read(reads, 20))
    os.close(reads)
    os.waitpid(pid, 0)
    return number


def zombies(numbers):
    states = []
    for number in numbers:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{number}/stat").read_text()
            states.append(stat.rpartition(")")[2].split()[0])
    return states.count("Z")


work(10)
orphans = [orphan() for _ in range(int(sys.argv[1]))]
end = time.monotonic() + 10
time.sleep(0.3)
while zombies(orphans) and time.monotonic() < end:
    time.sleep(0.05)
print(zombies(orphans), "zombies", "parent is 1:", os.getppid() == 1)

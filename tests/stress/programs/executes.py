"""Becomes other programs, from the main thread and from others, while threads work."""

import os
import sys
import threading

from given import MODE, SECONDS, SEED, Busy, burn, chosen, descriptors

left = int(sys.argv[4]) if len(sys.argv) > 4 else 4
print(left, descriptors(), flush=True)
busy = Busy(3)
burn(chosen.random() * 0.1)
if not left:
    os.execv("/bin/sh", ["sh", "-c", "ls /proc/self/fd | wc -l; exit 9"])
words = [sys.executable, sys.argv[0], MODE, str(SEED + 1), str(SECONDS), str(left - 1)]


def become():
    os.execv(sys.executable, words)


if MODE == "threads":
    thread = threading.Thread(target=become)
    thread.start()
    thread.join()
become()

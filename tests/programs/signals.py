"""Counts the signals it gets; ends at SIGTERM after half a second of quiet, so that a second one would be seen."""

import os
import signal
import sys
import time

from facts import work

counts = {}


def count(number, frame):
    name = signal.Signals(number).name
    counts[name] = counts.get(name, 0) + 1
    os.write(1, f"got {name}\n".encode())  # a handler may interrupt a print


wanted = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGCONT", "SIGTSTP"]
for name in wanted:
    if name not in sys.argv:  # an argument names a signal that keeps its default
        signal.signal(getattr(signal, name), count)
if "torch" in sys.argv:
    work()
print("ready", os.getpid(), flush=True)
end = time.monotonic() + 30
while time.monotonic() < end and "SIGTERM" not in counts:
    time.sleep(0.05)
quiet = time.monotonic() + 0.5
while time.monotonic() < quiet:
    time.sleep(0.05)
os.write(1, f"{sorted(counts.items())}\n".encode())
sys.exit(9)

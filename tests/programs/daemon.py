"""Leaves a process behind that goes on for a while after the program has ended, in a session of its own."""

import os
import time

from facts import work

work(100)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        end = time.monotonic() + 8
        while time.monotonic() < end:
            work(10)
            time.sleep(0.01)
        with open("daemon.txt", "w") as file:
            file.write("done")
    os._exit(0)
os.wait()
print("main is done")

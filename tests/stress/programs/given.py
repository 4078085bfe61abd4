"""What each hard program is given: a seed, and for how long it shall work. What it prints follows from both alone."""

import os
import random
import sys
import threading
import time

MODE, SEED, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
chosen = random.Random(SEED)


def rounds(each_second):
    """How often to do something that is done so many times a second, or as often as it takes."""
    return max(1, int(each_second * SECONDS))


def burn(cpu_s):
    """Use the CPU, in Python and in C by turns."""
    ends = time.thread_time() + cpu_s
    while time.thread_time() < ends:
        sum(sorted(range(300), key=lambda number: -number))


class Busy:
    """Threads that work all the time."""

    def __init__(self, count=2):
        self.goes_on = True
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self):
        while self.goes_on:
            burn(0.005)

    def end(self):
        self.goes_on = False
        for thread in self.threads:
            thread.join()


def descriptors():
    """The numbers of the open descriptors, without that of the folder which is read."""
    return sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]

"""Signals at random from another process, each counted by a handler of the program's. The next one is sent when the
last was seen: none may be lost, and none come twice."""

import collections
import os
import signal
import subprocess
import sys
import time

from given import MODE, SEED, Busy, chosen, descriptors, rounds

SENDER = """
import os, random, sys
pid, rounds, chosen = int(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
for _ in range(rounds):
    os.kill(pid, chosen.choice([int(word) for word in sys.argv[4:]]))
    sys.stdin.buffer.read(1)
"""
NUMBERS = [signal.SIGUSR1, signal.SIGURG, signal.SIGALRM, signal.SIGPROF, signal.SIGRTMIN + 3]
seen = collections.Counter()


def count(number, frame):
    seen[number] += 1
    os.write(answers, b".")


for number in NUMBERS:
    signal.signal(number, count)
    signal.siginterrupt(number, bool(chosen.randrange(2)))
busy = Busy(2)
times = rounds(200)
words = [str(int(number)) for number in NUMBERS]
reading, answers = os.pipe()
command = [sys.executable, "-S", "-c", SENDER, str(os.getpid()), str(times), str(SEED), *words]
sender = subprocess.Popen(command, stdin=reading)
while sender.poll() is None:
    if MODE == "busy":
        sum(range(2000))
    else:
        time.sleep(0.001)
busy.end()
os.close(reading), os.close(answers)
print(sorted((int(number), times) for number, times in seen.items()), sum(seen.values()) == times, descriptors())

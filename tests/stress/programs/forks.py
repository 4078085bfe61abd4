"""Forks, from the main thread and from others, while threads of a pool work; each child works, and some fork again."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from given import MODE, burn, chosen, descriptors, rounds


def child(number):
    burn(0.02)
    if number % 3 == 0:
        grandchild = os.fork()
        if not grandchild:
            burn(0.01)
            os._exit(number + 1)
        number = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    if number % 5 == 0:
        os.kill(os.getpid(), 9)
    os._exit(number)


def fork_and_wait(numbers, into):
    for number in numbers:
        pid = os.fork()
        if not pid:
            child(number)
        into.append((number, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


count = rounds(10)
found = [[] for _ in range(3)]
planned = [[chosen.randrange(100) for _ in range(count)] for _ in found]
with ThreadPoolExecutor(3) as pool:
    work = [pool.submit(burn, 0.2 * count / 10) for _ in range(6)]
    if MODE == "threads":
        threads = [threading.Thread(target=fork_and_wait, args=one) for one in zip(planned, found, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for one in zip(planned, found, strict=True):
            fork_and_wait(*one)
    print(sum(one.result() is None for one in work))
for statuses in found:
    print(statuses)
print(descriptors())

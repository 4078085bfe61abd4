"""Thousands of threads that live for a millisecond."""

import threading

from given import MODE, SEED, burn, descriptors, rounds

done = []


def live(number):
    burn(0.001)
    done.append(number)


if MODE == "small_stacks":
    threading.stack_size(32 << 10)
for first in range(0, rounds(400), 20):
    threads = [threading.Thread(target=live, args=(first + number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(SEED, len(done), sum(done), threading.active_count(), descriptors())

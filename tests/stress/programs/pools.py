"""Pools of processes, by each way to start them."""

import multiprocessing
import sys

from given import MODE, SEED, burn, descriptors, rounds


def squared(number):
    burn(0.002)
    return number * number


def with_pool(context, tasks):
    with context.Pool(3, maxtasksperchild=5) as pool:
        return pool.map(squared, tasks, chunksize=2)


if __name__ == "__main__":
    context = multiprocessing.get_context(MODE)
    tasks = range(SEED % 100, SEED % 100 + 40)
    for _ in range(rounds(0.7)):
        print(with_pool(context, tasks))
    queue, process = context.Queue(), None
    process = context.Process(target=queue.put, args=("put",))
    process.start()
    print(queue.get(timeout=60))
    process.join()
    print(process.exitcode, len(descriptors()) < 64)
    sys.exit(SEED % 7)

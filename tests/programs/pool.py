"""A pool of two processes, which is terminated as soon as it has answered. usage: pool.py fork|spawn|forkserver"""

import multiprocessing
import sys

from facts import work

TASKS, OPERATORS = 8, 5


def task(number):
    work(OPERATORS)
    return number


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map(task, range(TASKS), chunksize=1))

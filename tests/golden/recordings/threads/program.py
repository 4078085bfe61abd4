"""Two threads for stacks of all kinds: one computes in Python and in a matrix product, one waits for a lock."""

import threading
import time

import numpy as np

LOCK = threading.Lock()


def in_python(seconds: float) -> int:
    """Computes in the interpreter."""
    end, count = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        count += 1
    return count


def in_product(seconds: float) -> None:
    """Computes in a matrix product of one thread."""
    square, end = np.ones((128, 128)), time.thread_time() + seconds
    while time.thread_time() < end:
        square @ square


def waits() -> None:
    """Waits for the lock that the main thread holds while it sleeps."""
    with LOCK:
        pass


LOCK.acquire()
waiting = threading.Thread(target=waits)
waiting.start()
time.sleep(0.4)
LOCK.release()
waiting.join()
in_python(0.5)
in_product(0.5)

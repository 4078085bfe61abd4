"""What it asks of the kernel is known: usage: in_kernel.py kernel | queue. It prints what it measured, as JSON."""

import json
import mmap
import os
import queue
import sys
import threading
import time

SIZE = 32 << 20
LAPS = 12


def random_bytes(until):
    while time.thread_time() < until:
        os.urandom(65536)


def fault(until):
    while time.thread_time() < until:
        memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for place in range(0, SIZE, 4096):
            memory[place] = 1  # the line that faults
        memory.close()


def in_kernel():
    """Each function has a second; they take turns, so that what runs next says little of what ran."""
    used = {random_bytes.__name__: 0.0, fault.__name__: 0.0}
    for _ in range(10):
        for function in (random_bytes, fault):
            begun = time.thread_time()
            function(begun + 0.1)
            used[function.__name__] += time.thread_time() - begun
    return {name: int(seconds * 1e9) for name, seconds in used.items()}


def produce(items):
    for number in range(LAPS):
        time.sleep(0.05)
        items.put(number)  # the line that puts


def hold(lock, is_held, is_over):
    for _ in range(LAPS):
        with lock:
            is_held.set()
            time.sleep(0.05)
        is_over.wait()
        is_over.clear()


def waits():
    items = queue.Queue()
    producer = threading.Thread(target=produce, args=(items,), name="producer")
    producer.start()
    for _ in range(LAPS):
        items.get()  # the line that gets
    producer.join()
    lock, is_held, is_over = threading.Lock(), threading.Event(), threading.Event()
    holder = threading.Thread(target=hold, args=(lock, is_held, is_over), name="holder")
    holder.start()
    for _ in range(LAPS):
        is_held.wait()
        is_held.clear()
        with lock:  # the line that locks
            pass
        is_over.set()
    holder.join()
    return {"main": threading.main_thread().native_id, "producer": producer.native_id, "holder": holder.native_id}


if __name__ == "__main__":
    print(json.dumps(in_kernel() if sys.argv[1] == "kernel" else waits()))

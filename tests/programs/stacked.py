"""Programs whose time on and off the CPU is known: each prints what it measured itself, as JSON."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import sys
import threading
import time


def burn_most(seconds: float) -> None:
    """Use so much CPU time here."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


def burn_less(seconds: float) -> None:
    """Use so much CPU time here."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


def split() -> dict[str, float]:
    """60 % and 40 % of 3.6 s of CPU time, in turns."""
    for _ in range(36):
        burn_most(0.06)
        burn_less(0.04)
    return {}


def locks() -> dict[str, float]:
    """The main thread waits for a lock that another one holds for 50 ms, 20 times."""
    lock, held, done = threading.Lock(), threading.Semaphore(0), threading.Semaphore(0)

    def hold() -> None:
        for _ in range(20):
            with lock:
                held.release()
                time.sleep(0.05)
            done.acquire()

    holder = threading.Thread(target=hold, name="holder")
    holder.start()
    waited_ns = 0
    for _ in range(20):
        held.acquire()
        begin_ns = time.monotonic_ns()
        lock.acquire()  # the line that waits
        waited_ns += time.monotonic_ns() - begin_ns
        lock.release()
        done.release()
    holder.join()
    return {"waited_ns": waited_ns}


def gil() -> dict[str, float]:
    """Two threads that both want the interpreter for 1.2 s of CPU time each."""
    threads = [threading.Thread(target=burn_most, args=(1.2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {}


def _send(connection) -> None:
    for number in range(20):
        time.sleep(0.05)
        connection.send(number)


def pipes() -> dict[str, float]:
    """The main thread reads a pipe into which a child writes every 50 ms, 20 times."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send, args=(there,))
    child.start()
    begin_ns = time.monotonic_ns()
    for _ in range(20):
        here.recv_bytes()
    waited_ns = time.monotonic_ns() - begin_ns
    child.join()
    return {"waited_ns": waited_ns}


def faults() -> dict[str, float]:
    """Touches 400 fresh mappings of 1 MiB: 102,400 pages."""
    for _ in range(400):
        memory = mmap.mmap(-1, 1 << 20)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1
        memory.close()
    return {"pages": 400 * (1 << 20) // mmap.PAGESIZE}


def operators() -> dict[str, float]:
    """Matrix products of two sizes inside ranges, after a module."""
    import torch
    from torch.profiler import record_function

    torch.set_num_threads(1)
    a = torch.randn(400, 400)
    layer = torch.nn.Linear(600, 600)
    x = torch.randn(600, 600)
    end = time.thread_time() + 2
    with torch.no_grad():
        while time.thread_time() < end:
            with record_function("products"):
                for _ in range(5):
                    torch.mm(a, a)
            layer(x)
    return {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))

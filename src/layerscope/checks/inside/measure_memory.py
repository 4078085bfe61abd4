"""How fast memory is copied, by the C library's memmove, which every program has. Standard library,
Python 3.8.
"""

import ctypes
import mmap
import threading
import time

# A run shorter than this is mostly the start of the threads.
RUN_S = 0.03
FEWEST, MOST = 4, 200

_LIBC = ctypes.CDLL(None)  # a function of it is called without Python's lock
_LIBC.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_LIBC.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_LIBC.memmove.restype = _LIBC.memset.restype = ctypes.c_void_p


class Array:
    """Memory without anything in it yet: its pages lie near the CPU that touches them first."""

    def __init__(self, size):
        self._map = mmap.mmap(-1, size)
        self._view = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._view)

    def free(self):
        """Give it back."""
        del self._view
        self._map.close()


class Copy:
    """One array copied to another by several threads, a slice each."""

    def __init__(self, threads, size):
        self.threads = threads
        self.slice = size // threads // 64 * 64
        self.source = Array(size)
        self.target = Array(size)
        self.barrier = threading.Barrier(threads + 1)
        self.rounds = 0  # copies of a slice in one run; 0: touch it
        self.spans = [(0.0, 0.0)] * threads
        self.workers = []

    def start(self):
        """Start the threads; RuntimeError where there may not be so many."""
        for number in range(self.threads):
            worker = threading.Thread(target=self.work, args=(number,), daemon=True)
            worker.start()
            self.workers.append(worker)

    def work(self, number):
        """What thread `number` does until the end."""
        source, target = (
            self.source.address + number * self.slice,
            self.target.address + number * self.slice,
        )
        try:
            while True:
                self.barrier.wait()
                begin = time.perf_counter()
                if not self.rounds:
                    _LIBC.memset(source, 1, self.slice)
                    _LIBC.memset(target, 2, self.slice)
                for _ in range(self.rounds):
                    _LIBC.memmove(target, source, self.slice)
                self.spans[number] = begin, time.perf_counter()
                self.barrier.wait()
        except threading.BrokenBarrierError:
            return

    def run(self, rounds):
        """Seconds from the first thread's begin to the last one's end."""
        self.rounds = rounds
        self.barrier.wait()
        self.barrier.wait()
        begins = [begin for begin, _ in self.spans]
        ends = [end for _, end in self.spans]
        last_end = max(ends)
        return last_end - min(begins)

    def finish(self):
        """End the threads and give the memory back."""
        self.barrier.abort()
        for worker in self.workers:
            worker.join()
        self.source.free()
        self.target.free()


def bandwidth(threads, size, seconds):
    """Two arrays of `size` bytes each: GB/s read and written, best of the runs that fit into
    `seconds`.
    """
    copy = Copy(threads, size)
    try:
        copy.start()
        end = time.perf_counter() + seconds
        copy.run(0)
        copy.run(1)
        rounds = max(1, int(RUN_S / max(copy.run(1), 1e-6)))
        times = []
        while len(times) < FEWEST or (time.perf_counter() < end and len(times) < MOST):
            times.append(copy.run(rounds) / rounds)
    finally:
        copy.finish()
    times.sort()
    half = times[: max(1, (len(times) + 1) // 2)]
    return {
        "threads": threads,
        "gbyte_per_s": 2e-9 * copy.slice * threads / times[0],
        "runs": len(times),
        "spread": half[-1] / half[0] - 1,
    }

"""Tiny operators from some threads, at a steady rate or as fast as they go; says how much memory
the program has.

usage: stream.py [--threads N] [--rate N] [--seconds S | --operators N[,N...]] Prints one line of
JSON: begin_ns, operators, wall_ns, cpu_ns, and rss_bytes after each number of operators a thread.
"""

from __future__ import annotations

import argparse
import json
import threading
import time

import torch

PAUSE_S = 0.001
ROUNDS_AT_MOST = 2000  # at once, when the pace was lost


class Stream:
    """One thread's operators, in pairs: aten::mul and aten::add."""

    def __init__(self) -> None:
        self.done = 0
        self.averages = torch.zeros(8)
        self._decay, self._news = torch.full((8,), 0.99), torch.linspace(0.0, 0.07, 8)

    def run(self, rounds: int) -> None:
        """Two operators a round."""
        averages, decay, news = self.averages, self._decay, self._news
        for _ in range(rounds):
            averages = averages * decay + news
        self.averages = averages
        self.done += 2 * rounds

    def run_for(self, seconds: float, rate: float) -> None:
        """`rate` operators a second; 0: as many as possible."""
        begin = time.monotonic()
        while (spent := time.monotonic() - begin) < seconds:
            if not rate:
                self.run(ROUNDS_AT_MOST)
                continue
            due = int((spent * rate - self.done) / 2)
            if due > 0:
                self.run(min(due, ROUNDS_AT_MOST))
            time.sleep(PAUSE_S)


def rss_bytes() -> int:
    """Resident memory of this process, exactly."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))


def run_counted(threads: int, goals: list[int]) -> tuple[list[Stream], list[int]]:
    """Each thread runs up to each goal and waits there for the others and for the reading of the
    memory.
    """
    streams = [Stream() for _ in range(threads)]
    barrier = threading.Barrier(threads + 1)

    def work(stream: Stream) -> None:
        for goal in goals:
            stream.run((goal - stream.done) // 2)
            barrier.wait()
            barrier.wait()

    workers = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for worker in workers:
        worker.start()
    readings = []
    for _ in goals:
        barrier.wait()
        readings.append(rss_bytes())
        barrier.wait()
    for worker in workers:
        worker.join()
    return streams, readings


def run_timed(threads: int, seconds: float, rate: float) -> tuple[list[Stream], list[int]]:
    """Each thread runs for some time."""
    streams = [Stream() for _ in range(threads)]
    workers = [
        threading.Thread(target=stream.run_for, args=(seconds, rate / threads))
        for stream in streams
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return streams, [rss_bytes()]


def main() -> None:
    """Run the streams and print what they did."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="operators a second, of all threads together"
    )
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--operators", help="in each thread, instead of --seconds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin_ns, wall_ns, cpu_ns = time.monotonic_ns(), time.perf_counter_ns(), time.process_time_ns()
    if options.operators:
        streams, rss = run_counted(
            options.threads, [int(word) for word in options.operators.split(",")]
        )
    else:
        streams, rss = run_timed(options.threads, options.seconds, options.rate)
    found = {
        "begin_ns": begin_ns,
        "operators": sum(stream.done for stream in streams),
        "wall_ns": time.perf_counter_ns() - wall_ns,
        "cpu_ns": time.process_time_ns() - cpu_ns,
        "rss_bytes": rss,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

"""Many operators on tiny tensors: eight decaying averages, updated one multiplication and one
addition at a time.

Nearly all of its time is the framework's own overhead, so it is the hardest program to watch
without slowing it down.
"""

from __future__ import annotations

import argparse
import threading
import time

import torch


def update_averages(operators: int) -> torch.Tensor:
    """Runs `operators` operators in pairs: half of them aten::mul, half of them aten::add."""
    averages = torch.zeros(8)
    decay, news = torch.full((8,), 0.99), torch.linspace(0.0, 0.07, 8)
    for _ in range(operators // 2):
        averages = averages * decay + news
    return averages


def main() -> None:
    """Runs the loop in one thread, or in several at once, and prints the time of an operator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--operators", type=int, default=1_000_000, help="in each thread (%(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads that run the loop (%(default)s)"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)
    threads = [
        threading.Thread(target=update_averages, args=[options.operators])
        for _ in range(options.threads - 1)
    ]
    start_s = time.perf_counter()
    for thread in threads:
        thread.start()
    averages = update_averages(options.operators)
    for thread in threads:
        thread.join()
    dur_s = time.perf_counter() - start_s

    count = options.operators // 2 * 2 * options.threads
    print(f"{count} operators in {dur_s:.2f} s: {dur_s / max(count, 1) * 1e6:.2f} µs each")
    print("averages:", " ".join(f"{value:.2f}" for value in averages.tolist()))


if __name__ == "__main__":
    main()

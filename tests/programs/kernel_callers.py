"""Functions that ask the kernel for what takes time, called in the ways that Python calls: prints
the CPU time of each, as JSON.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator

ZEROS = os.open("/dev/zero", os.O_RDONLY)
CALLS = 8
BYTES = 1 << 20
SECONDS = 2.5


def generator() -> Iterator[int]:
    """Is driven by a loop."""
    for _ in range(CALLS):
        yield len(os.read(ZEROS, BYTES))


class Loader:
    """Has a `__next__` of Python, as loaders have."""

    def __init__(self) -> None:
        self.left = CALLS

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> int:
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return len(os.read(ZEROS, BYTES))


def plain() -> int:
    """Is called."""
    return len(os.read(ZEROS, BYTES))


def mapped(_: int) -> int:
    """Is called by `map`."""
    return len(os.read(ZEROS, BYTES))


def drives_generator() -> None:
    for _ in generator():
        pass


def drives_loader() -> None:
    for _ in Loader():
        pass


def calls_next() -> None:
    one = generator()
    while next(one, None) is not None:
        pass


def calls_plainly() -> None:
    for _ in range(CALLS):
        plain()


def calls_map() -> None:
    sum(map(mapped, range(CALLS)))


def computes() -> None:
    """Comes after all of them, outside of the kernel."""
    sum(i * i for i in range(3_000))


KINDS: tuple[Callable[[], None], ...] = (
    drives_generator,
    drives_loader,
    calls_next,
    calls_plainly,
    calls_map,
)


def main() -> None:
    used_ns = dict.fromkeys((kind.__name__ for kind in (*KINDS, computes)), 0)
    end_ns = time.thread_time_ns() + SECONDS * 1e9
    while time.thread_time_ns() < end_ns:
        for kind in KINDS:
            for function in (kind, computes):
                begin_ns = time.thread_time_ns()
                function()
                used_ns[function.__name__] += time.thread_time_ns() - begin_ns
    print(json.dumps(used_ns))


if __name__ == "__main__":
    main()

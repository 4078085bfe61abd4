"""What the programs in Python share: clocks around batches of work and waits, and the truth, which
every process prints at its end as one line of JSON.

A clock of a thread is read twice for a batch of milliseconds; what is planted inside of another
batch counts to its own functions and lines alone, but to the inclusive times of both.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
BATCH = 40
# Some 200 us each: one in the kernel alone, one in C alone. Neither has a function of Python.
kernel = partial(os.getrandom, 1 << 16)
compute = partial(sum, range(12_000))
# In which way the program runs, of those that it names behind `also:`.
WAYS = "_".join(sys.argv[2:]).split("_")
# What the program judges: one that says `also: kernel` is run with the other one, too.
work = kernel if "kernel" in WAYS else compute

_found: dict[str, dict[str, int]] = {}
_lock = threading.Lock()
_own = threading.local()
_begin = [time.monotonic_ns()]
_cpu = [0.0]


def going() -> bool:
    """Whether the program's seconds are not over; at times with up to 10 ms of work that nobody
    judges, so that the turns of a program do not keep step with the samples of a tool.
    """
    if random.random() < 0.25:
        for _ in range(random.randrange(50)):
            compute()
    return time.monotonic_ns() - _begin[0] < SECONDS * 1e9


def restart() -> None:
    """The seconds begin now: what a library does to load was before."""
    _begin[0] = time.monotonic_ns()
    _cpu[0] = time.process_time()


def add(kind: str, name: str, ns: int) -> None:
    """So much more of the truth."""
    with _lock:
        names = _found.setdefault(kind, {})
        names[name] = names.get(name, 0) + ns


class Cpu:
    """A batch on the CPU: `function`, `line` (a mark in a comment) and `symbol` have it as their
    own time, `function_total`, `line_total` and `symbol_total` with all inside.
    """

    def __init__(self, **names: str) -> None:
        self.names = names
        self.inside = 0

    def __enter__(self) -> Cpu:
        """Begin."""
        self.around = getattr(_own, "batch", None)
        _own.batch = self
        self.begin = time.thread_time_ns()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        ns = time.thread_time_ns() - self.begin
        _own.batch = self.around
        if self.around is not None:
            self.around.inside += ns
        for kind, name in self.names.items():
            add(kind, name, ns if kind.endswith("_total") else ns - self.inside)


class Wait:
    """A wait: its kind in `wait`, where it is in `wait_function` and `wait_line`. It lasts until
    the thread has a CPU again.
    """

    def __init__(self, **names: str) -> None:
        self.names = names

    def __enter__(self) -> Wait:
        """Begin."""
        self.cpu = time.thread_time_ns()
        self.begin = time.monotonic_ns()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        ns = time.monotonic_ns() - self.begin - (time.thread_time_ns() - self.cpu)
        for kind, name in self.names.items():
            add(kind, name, ns)


class GilWait(Wait):
    """A wait for the GIL, of a thread that computes otherwise. It is known where no other program
    wants the CPUs: a thread that waits for a CPU does not compute either.
    """

    def __enter__(self) -> GilWait:
        """Begin."""
        self.contention = _contention_ns()
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        elapsed = time.monotonic_ns() - self.begin
        if _contention_ns() - self.contention < 0.02 * elapsed:
            super().__exit__()


def _contention_ns() -> int:
    """How long this thread has waited for a CPU."""
    text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
    return int(text.split()[1])


def wait_in_turns(waits: Callable[[], None], wakes: Callable[[], None], states: str) -> None:
    """A whole program: `waits` waits in one of `states`, until a thread that sleeps calls `wakes`;
    then it computes a little.
    """

    def other() -> None:
        while True:
            with Wait(wait="sleep"):
                time.sleep(0.03)
            wakes()

    threading.Thread(target=other, daemon=True).start()
    while going():
        with Wait(wait=states, wait_function="waits", wait_line="wait"):
            waits()
        compute()
    finish()


def forked() -> None:
    """In a child that a fork made: what the parent found is not its own."""
    _found.clear()


def marks() -> dict[str, str]:
    """FILE:LINE of each comment `line: MARK` of the program."""
    path = Path(sys.argv[0])
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = ((number, text.partition("# line: ")) for number, text in lines)
    return {mark.strip(): f"{path.name}:{number}" for number, (_, is_one, mark) in found if is_one}


def finish() -> None:
    """Print the truth."""
    lines = marks()
    truth = {
        kind: {lines[name] if "line" in kind else name: ns / 1e9 for name, ns in names.items()}
        for kind, names in _found.items()
    }
    cpu = time.process_time()
    said = {
        "truth": truth,
        "cpu": cpu - _cpu[0],
        "wall": (time.monotonic_ns() - _begin[0]) / 1e9,
        "process_cpu": cpu,
    }
    print(json.dumps(said), flush=True)

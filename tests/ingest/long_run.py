"""Raw files of long runs, made by hand: loops of every rule, with what is in each of their steps
known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.ingest.raw_file import BACKWARD, FUNCTION, LOADER, MODULE, OPTIMIZER, RANGE, RawFile

# Spans between two comparisons of the clocks.
PER_POLL = 40
SGD, ADAM = "Optimizer.step#SGD.step", "Optimizer.step#Adam.step"
NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


class Loop:
    """Writes the spans of one thread, one after the other, as they end."""

    def __init__(self, raw: Path, pid: int = 100) -> None:
        self.file = RawFile(raw, pid)
        self.file.poll(1)
        self.now = 1000
        self.waiting = self.file.thread_begin(500, pid, 1)
        self.depth = 0
        self.modules = 0
        self.seq = 0

    def call(
        self, name: str, kind: int = FUNCTION, inside: Callable[[], None] | None = None, **more: int
    ) -> None:
        """A span; `inside` writes what runs in it."""
        start = self.now
        self.now += 3 + len(name)
        self.depth += 1
        if inside:
            inside()
        self.depth -= 1
        self.now += 2 + self.now % 7
        self.waiting += self.file.span(start, self.now, self.depth, name, kind, **more)
        self.now += 1
        if len(self.waiting) >= PER_POLL:
            self.flush()

    def module(self, text: str, inside: Callable[[], None]) -> None:
        """A call of a module; its text has path, class and line."""
        around, self.modules = self.modules, self.modules + 1
        self.call(text, MODULE, inside, seq=around)
        self.modules -= 1

    def mark(self) -> None:
        """The program says that a step ends."""
        self.waiting += self.file.mark(self.now, "step", 1)
        self.now += 1

    def forward(self, layers: int = 3) -> None:
        """Operators of a forward pass, each with one inside."""
        for _ in range(layers):
            self.seq += 1
            self.call(
                "aten::linear", inside=lambda: self.call("aten::addmm", seq=self.seq), seq=self.seq
            )

    def backward(self, layers: int = 3) -> None:
        """The backward functions of that pass, last one first."""
        for seq in range(self.seq, self.seq - layers, -1):
            function = "autograd::engine::evaluate_function: AddmmBackward0"
            self.call(
                function, BACKWARD,
                lambda seq=seq: self.call("AddmmBackward0", BACKWARD, lambda: self.call("aten::mm"), seq=seq,
                                          forward_thread=1),
            )  # fmt: skip

    def flush(self) -> None:
        """What has ended is drained, and the clocks are compared."""
        if self.waiting:
            self.file.records(0, self.waiting)
            self.waiting = []
        self.now += 1
        self.file.poll(self.now)
        self.now += 1

    def end(self) -> None:
        """The last word."""
        self.flush()
        self.file.end(self.now + 1)


def optimizer(loop: Loop, steps: int) -> None:
    """A training loop with a loader, two optimizers, and an evaluation now and then."""
    for step in range(steps):
        loop.call(NEXT, LOADER, lambda: loop.call("aten::stack"))
        loop.forward(2 + step % 2)
        loop.backward(2 + step % 2)
        loop.call(SGD, OPTIMIZER, lambda: loop.call("aten::_foreach_add_"), optimizer=1)
        loop.call(ADAM, OPTIMIZER, lambda: loop.call("aten::_foreach_mul_"), optimizer=2)
        if step % 50 == 49:
            for _ in range(3):
                loop.call(NEXT, LOADER, lambda: loop.call("aten::stack"))
                loop.forward()
            loop.call(NEXT, LOADER)


def loader(loop: Loop, steps: int) -> None:
    """Batches without an optimizer."""
    for _ in range(steps):
        loop.call(NEXT, LOADER, lambda: loop.call("aten::stack"))
        loop.forward()


def mark(loop: Loop, steps: int) -> None:
    """Steps that the program marks itself."""
    for _ in range(steps):
        loop.forward()
        loop.call("my range", RANGE, loop.forward)
        loop.mark()


def request(loop: Loop, steps: int) -> None:
    """Calls of a model."""
    for _ in range(steps):
        loop.module("Net\nNet\nt.py:1", lambda: loop.module("Net.fc\nLinear\nt.py:2", loop.forward))
        loop.call("aten::argmax")


def nothing(loop: Loop, steps: int) -> None:
    """Operators and nothing else."""
    for _ in range(steps):
        loop.forward()


LOOPS = {
    "optimizer": optimizer,
    "loader": loader,
    "mark": mark,
    "request": request,
    "none": nothing,
}


def write(raw: Path, rule: str, steps: int, around: bool = False) -> None:
    """The raw file of a run; with `around`, one range lasts from before its first step to its
    end.
    """
    loop = Loop(raw)
    loop.forward(2)
    if around:
        loop.call("all of it", RANGE, lambda: LOOPS[rule](loop, steps))
    else:
        LOOPS[rule](loop, steps)
    loop.forward(1)
    loop.end()


def write_overlapping(raw: Path, requests: int) -> None:
    """Requests on two threads, each begun before the last one of the other has ended, and a thread
    that makes none.

    A request is a module with three operators; the third thread runs an operator in an operator
    again and again.
    """
    file = RawFile(raw, 100)
    file.poll(1)
    spans: list[tuple[int, int, int, int, str, int]] = []  # end, start, ring, depth, name, kind
    for number in range(requests):
        start, ring = 1000 + 100 * number, number % 2
        spans += [
            (start + 30 * (i + 1), start + 30 * i + 5, ring, 2, "aten::addmm", FUNCTION)
            for i in range(3)
        ]
        spans.append((start + 150, start, ring, 1, "Net\nNet\nt.py:1", MODULE))
    for start in range(1000, 1000 + 100 * requests, 70):
        spans.append((start + 55, start + 5, 2, 2, "aten::mm", FUNCTION))
        spans.append((start + 60, start, 2, 1, "aten::linear", FUNCTION))
    waiting = {ring: file.thread_begin(500, 100 + ring, ring + 1, ring + 1) for ring in range(3)}
    for place, (end, start, ring, depth, name, kind) in enumerate(sorted(spans)):
        more = {"seq": 0} if kind == MODULE else {}
        waiting[ring] += file.span(start, end, depth, name, kind, **more)
        if place % PER_POLL == PER_POLL - 1 or place == len(spans) - 1:
            for of, records in waiting.items():
                if records:
                    file.records(of, records)
            waiting = {ring: [] for ring in range(3)}
            file.poll(end)
    file.end(1000 + 100 * requests + 500)

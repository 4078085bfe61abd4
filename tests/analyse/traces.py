"""Traces of imaginary programs, with a clock that only ticks when told, and what the right answer
is.

A `Trace` runs on a fake clock in which everything takes a few nanoseconds. Programs are written
with its context managers; beside the spans it notes the true phase of every nanosecond, from the
phases the program says it is in, so that a test need not compute anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from layerscope.ingest.steps import ProcessSteps, SpanColumns, find_steps
from layerscope.model.layers import KINDS, PHASES

NODE = "autograd::engine::evaluate_function: MmBackward0"
SINGLE = "_SingleProcessDataLoaderIter"
WORKERS = "_MultiProcessingDataLoaderIter"


@dataclass
class Trace:
    """The spans of one process, in the order in which they end, as a recorder writes them."""

    now: int = 1_000
    track: int = 0
    spans: list[tuple[int, int, int, int, str, str, int]] = field(default_factory=list)
    phases: list[str] = field(default_factory=lambda: ["other"])
    truth: list[str] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    begin: int = 1_000
    began_wait: int = 0
    depth: Counter[int] = field(default_factory=Counter)
    engine_kind: str = "function"  # what the engine's own spans are to torch
    network: str = (
        ""  # the module whose call the operators of a forward pass run in, if one was recorded
    )
    marks: list[tuple[int, int]] = field(default_factory=list)
    step_mark: str = ""

    def tick(self, ns: int = 1) -> None:
        """Python works for a while."""
        self.truth += [self.phases[-1]] * ns
        self.now += ns

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens here is truly of this phase."""
        self.phases.append(name)
        yield
        self.phases.pop()

    def begin_step(self) -> None:
        """Here a step truly begins."""
        self.begin = self.now

    def end_step(self) -> None:
        """Here a step truly ends, and the next one begins unless it is said to begin later."""
        self.steps.append((self.begin, self.now))
        self.begin = self.now

    @contextmanager
    def step(self) -> Iterator[None]:
        """What happens here is truly one step."""
        self.begin_step()
        yield
        self.end_step()

    @contextmanager
    def on(self, track: int) -> Iterator[None]:
        """What happens here runs on another thread while this one waits."""
        mine, self.track = self.track, track
        yield
        self.track = mine

    @contextmanager
    def span(self, kind: str, name: str, optimizer: int = -1) -> Iterator[None]:
        """A span: it takes a nanosecond before and one after what is in it."""
        track, start = self.track, self.now
        depth = self.depth[track]
        self.depth[track] += 1
        self.tick()
        yield
        self.tick()
        self.depth[track] -= 1
        self.spans.append((track, depth, start, self.now - start, kind, name, optimizer))

    @contextmanager
    def module(self, path: str) -> Iterator[None]:
        """An outermost call of a module, which takes no time beside what is in it."""
        track, start = self.track, self.now
        self.depth[track] += 1
        yield
        self.depth[track] -= 1
        self.spans.append((track, self.depth[track], start, self.now - start, "module", path, -1))

    def recorded(self, path: str) -> AbstractContextManager[None]:
        """An outermost call of a module, if its path is known: modules were recorded then."""
        return self.module(path) if path else nullcontext()

    def call(self, path: str, ops: int = 2) -> None:
        """A forward pass of a module that the program calls itself."""
        with self.phase("forward"), self.module(path):
            self.tick()
            self.ops(ops)
            self.tick()

    def mark(self) -> None:
        """`layerscope.step()`."""
        self.marks.append((self.now, self.track))

    def op(self, name: str = "aten::mm") -> None:
        """An operator with another one in it."""
        with self.span("function", name):
            self.tick(2)
            with self.span("function", "aten::as_strided"):
                pass

    def ops(self, count: int = 2) -> None:
        """Operators with Python between them."""
        for number in range(count):
            self.tick(2 if number else 0)
            self.op()

    def forward_backward(
        self, before_backward: Callable[[], None] = lambda: None, nodes: int = 3
    ) -> None:
        """A forward pass, something before its backward pass, the backward pass."""
        with self.phase("forward"):
            with self.recorded(self.network):
                self.ops()
            before_backward()
            self.op("aten::ones_like")
            self.tick(3)
        self.backward(nodes)

    def backward(self, nodes: int = 3, in_last: Callable[[], None] = lambda: None) -> None:
        """A backward pass, with something in its last node."""
        with self.phase("backward"):
            for number in range(nodes):
                self.tick(2 if number else 0)
                with self.span(self.engine_kind, NODE), self.span("backward", "MmBackward0"):
                    self.op()
                    if number == nodes - 1:
                        in_last()

    def optimizer_step(
        self, instance: int = 0, name: str = "SGD", closure: Callable[[], None] | None = None
    ) -> None:
        """`Optimizer.step`, with operators after its closure."""
        with (
            self.phase("optimizer"),
            self.span("optimizer", f"Optimizer.step#{name}.step", instance),
        ):
            if closure:
                closure()
                self.tick()
            self.ops()

    def zero_grad(self, name: str = "SGD") -> None:
        """`Optimizer.zero_grad`."""
        with (
            self.phase("optimizer"),
            self.span("optimizer", f"Optimizer.zero_grad#{name}.zero_grad"),
        ):
            self.op("aten::zero_")

    def wait(self, content: tuple[str, ...], iterator: str = SINGLE) -> None:
        """One `__next__` of a loader, in which these operators run."""
        self.began_wait = self.now
        with (
            self.phase("loading"),
            self.span("loader", f"enumerate(DataLoader)#{iterator}.__next__"),
        ):
            for name in content:
                with self.span("function", name):
                    pass

    def load(
        self, batches: int, iterator: str = SINGLE, shuffle: bool = True, tensors: bool = True
    ) -> Iterator[int]:
        """Iterate over a loader as a `for` does: a new iterator draws a seed, the last `__next__`
        is empty.

        A step truly begins with the first batch.
        """
        for name in ("aten::empty", "aten::random_", "aten::item"):
            with self.span("function", name):
                self.tick()
        self.tick(2)
        make = (
            ()
            if not tensors
            else ("aten::select", "aten::stack")
            if iterator == SINGLE
            else ("aten::set_",)
        )
        order = ("aten::randperm",) if shuffle and iterator == SINGLE else ()
        for number in range(batches):
            if number == 0:
                self.begin_step()
            self.wait(make + (order if number == 0 else ()), iterator)
            self.tick()
            yield number
            self.tick()
        self.wait(order, iterator)

    def columns(self, order: np.random.Generator | None = None) -> SpanColumns:
        """What the analysis is given."""
        spans = list(self.spans)
        if order is not None:
            order.shuffle(spans)
        columns = make_columns(spans)
        columns.marks_ns = np.array([at_ns for at_ns, _ in self.marks], np.int64)
        columns.marks_track = np.array([track for _, track in self.marks], np.int32)
        columns.step_mark = self.step_mark
        return columns


def make_columns(spans: list[tuple[int, int, int, int, str, str, int]]) -> SpanColumns:
    """Columns of rows of track, depth, start, duration, kind, name, optimizer."""
    names = sorted({span[5] for span in spans})
    code = {name: number for number, name in enumerate(names)}
    return SpanColumns(
        track=np.array([span[0] for span in spans], np.int32),
        depth=np.array([span[1] for span in spans], np.int32),
        start_ns=np.array([span[2] for span in spans], np.int64),
        dur_ns=np.array([span[3] for span in spans], np.int64),
        kind=np.array([KINDS.index(span[4]) for span in spans], np.uint8),
        name=np.array([code[span[5]] for span in spans], np.int32),
        names=names,
        optimizer=np.array([span[6] for span in spans], np.int32),
    )


def phase_columns(steps: ProcessSteps) -> np.ndarray:
    return np.column_stack(
        (steps.load_ns, steps.forward_ns, steps.backward_ns, steps.optimizer_ns, steps.other_ns)
    )


def check_truth(trace: Trace, rule: str = "optimizer") -> ProcessSteps:
    """The steps found are those the program made, to the nanosecond, whatever the order of the
    spans.
    """
    steps = find_steps(trace.columns())
    assert steps.rule == rule
    assert (
        list(zip(steps.start_ns.tolist(), (steps.start_ns + steps.dur_ns).tolist(), strict=True))
        == trace.steps
    )
    origin = trace.now - len(trace.truth)
    for (begin, end), found in zip(trace.steps, phase_columns(steps).tolist(), strict=True):
        true = Counter(trace.truth[begin - origin : end - origin])
        assert dict(zip(PHASES, found, strict=True)) == {phase: true[phase] for phase in PHASES}
    shuffled = find_steps(trace.columns(order=np.random.default_rng(1)))
    assert np.array_equal(shuffled.start_ns, steps.start_ns)
    assert np.array_equal(phase_columns(shuffled), phase_columns(steps))
    check_laws(steps)
    return steps


def check_laws(steps: ProcessSteps) -> None:
    """What holds for the steps of any trace."""
    end = steps.start_ns + steps.dur_ns
    assert (steps.dur_ns >= 0).all()
    assert (np.diff(steps.start_ns) >= 0).all()
    assert (phase_columns(steps) >= 0).all()
    assert np.array_equal(phase_columns(steps).sum(axis=1), steps.dur_ns)
    assert len(steps.warmup) == len(steps)
    if steps.lanes:
        check_lanes(steps)
        return
    assert (steps.start_ns[1:] >= end[:-1]).all()
    for moment in (
        steps.start_ns,
        end - 1,
        end,
        steps.start_ns - 1,
        steps.start_ns + steps.dur_ns // 2,
    ):
        step, phase = steps.assign(moment, np.zeros(len(moment), np.int32))
        assert step.dtype == np.int32
        assert phase.dtype == np.int8
        inside = (moment[:, None] >= steps.start_ns) & (moment[:, None] < end)
        assert step.tolist() == [row.index(True) if True in row else -1 for row in inside.tolist()]
        assert np.array_equal(phase >= 0, step >= 0)


def check_lanes(steps: ProcessSteps) -> None:
    """On a track steps do not overlap, and every step is on one track."""
    end = steps.start_ns + steps.dur_ns
    on: Counter[int] = Counter()
    for track, lane in steps.lanes.items():
        mine = sorted({int(step) for step in lane.step} - {-1})
        assert (steps.start_ns[mine[1:]] >= end[mine[:-1]]).all()
        some = [number for number in mine if steps.dur_ns[number]]
        step, phase = steps.assign(steps.start_ns[some], np.full(len(some), track, np.int32))
        assert step.tolist() == some
        assert (phase >= 0).all()
        on.update(mine)
    assert all(
        on[number] == (1 if dur_ns else on[number])
        for number, dur_ns in enumerate(steps.dur_ns.tolist())
    )
    step, phase = steps.assign(steps.start_ns, np.full(len(steps), max(steps.lanes) + 1, np.int32))
    assert step.tolist() == phase.tolist() == [-1] * len(steps)


def assert_assigns_truth(trace: Trace, steps: ProcessSteps) -> None:
    origin = trace.now - len(trace.truth)
    found, phase = steps.assign(np.arange(origin, trace.now))
    for at in np.flatnonzero(found >= 0).tolist():
        assert PHASES[phase[at]] == trace.truth[at], f"at {at + origin}"


@st.composite
def programs(draw: st.DrawFn) -> Trace:
    """A training program made of the usual parts."""
    iterator = draw(st.sampled_from([SINGLE, WORKERS]))
    shuffle, tensors, evaluates, logs, closure = (draw(st.booleans()) for _ in range(5))
    network = draw(st.sampled_from(["", "Net"]))
    accumulate = draw(st.integers(1, 3))
    zero_grad = draw(st.sampled_from(["first", "middle", "last"]))
    trace = Trace(track=draw(st.sampled_from([0, 4])), network=network)
    trace.ops(draw(st.integers(0, 5)))
    for _epoch in range(draw(st.integers(1, 3))):
        for batch in trace.load(accumulate * draw(st.integers(1, 3)), iterator, shuffle, tensors):
            work = draw(st.sampled_from([1, 2, 5]))
            ends = batch % accumulate == accumulate - 1
            if zero_grad == "first" and batch % accumulate == 0 and not closure:
                trace.zero_grad()

            def one(work: int = work) -> None:
                if closure:
                    trace.zero_grad()
                trace.forward_backward(
                    trace.zero_grad if zero_grad == "middle" and not closure else lambda: None, work
                )

            if not (closure and ends):
                one()
            if ends:
                trace.tick(draw(st.integers(0, 4)))
                trace.optimizer_step(5, closure=one if closure else None)
                trace.end_step()
                if zero_grad == "last":
                    trace.zero_grad()
                if logs:
                    trace.tick()
                    trace.op("aten::item")
        if evaluates:
            for _ in trace.load(2, iterator, shuffle, tensors):
                with trace.recorded(network):
                    trace.ops(draw(st.integers(2, 4)))
    return trace

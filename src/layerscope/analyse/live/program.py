"""A program while it runs: what its increments add up to, as tables and as a few facts."""

from __future__ import annotations

from collections import deque

import numpy as np
from msgspec import Struct

from layerscope.analyse.live.sums import WindowSums
from layerscope.model.live import (
    BUCKET_NS,
    FUNCTIONS,
    IDLE,
    OPERATORS,
    PRIMITIVES,
    STEP_RULES,
    SUMS,
    SYMBOLS,
    THREADS,
    WAITS,
    Increment,
    Known,
)

# The times of a step are of the newest ones, where a window has too few of them.
_LEAST_STEPS = 2
_READY = SUMS[THREADS].index("ready_ns")
_CPU = SUMS[THREADS].index("cpu_ns")
# What is added up to a table's whole, of which shares are.
_WHOLE_OF = {
    FUNCTIONS: "self_ns",
    OPERATORS: "self_ns",
    PRIMITIVES: "self_ns",
    SYMBOLS: "self_ns",
    THREADS: "cpu_ns",
    WAITS: "total_ns",
}


class StepState(Struct, frozen=True):
    """Steps as far as they are known. `rule`: what a step is, empty where there are none.

    `step_ns`: the mean time of those of the window, or of the newest two; None: there are fewer.
    `count`: since the start.
    """

    rule: str = ""
    count: int = 0
    step_ns: int | None = None


class Facts(Struct, frozen=True):
    """What there is to say of a program beside the tables.

    `window_ns`: how long the window is so far. In it: `cpu_ns` of all its processes, `ready_ns` in
    which threads had no CPU though they could run (None: not told). `rss_bytes`, `rss_peak_bytes`
    and `threads` of all its processes as they were last read, None: not known. `lost`: records that
    were lost.
    """

    until_ns: int
    window_ns: int
    cpu_ns: int
    ready_ns: int | None
    processes: int
    rss_bytes: int | None
    rss_peak_bytes: int | None
    threads: int | None
    steps: StepState
    lost: int
    has_samples: bool


class LiveProgram:
    """Adds increments up. `known`: what their keys stand for; `start_ns`: when the program began;
    `window_ns`: how long the window is.
    """

    def __init__(self, known: Known, start_ns: int, window_ns: int) -> None:
        self.known = known
        self.until_ns = -1
        self.since_ns = start_ns  # what is shown as a whole began then
        self._sums = {name: WindowSums(len(sums), window_ns) for name, sums in SUMS.items()}
        self._cpu = WindowSums(1, window_ns)
        self._ends: dict[str, deque[int]] = {}
        self._counts = dict.fromkeys(STEP_RULES, 0)

    def add(self, increment: Increment) -> None:
        """Take in what is new."""
        self.until_ns = max(self.until_ns, increment.until_ns)
        for sums in (*self._sums.values(), self._cpu):
            sums.advance(self.until_ns)
        for name, parts in increment.counted.items():
            for counted in parts:
                self._sums[name].add(counted)
        for counted in increment.cpu:
            self._cpu.add(counted)
        for rule, ends in increment.step_ends.items():
            self._ends.setdefault(rule, deque()).extend(np.sort(ends).tolist())
            self._counts[rule] += len(ends)
        for kept in self._ends.values():
            while len(kept) > _LEAST_STEPS + 1 and kept[0] < self._begin_ns:
                kept.popleft()

    def reset(self) -> None:
        """Count from now on."""
        for sums in (*self._sums.values(), self._cpu):
            sums.reset()
        self.since_ns = self._cpu.end_ns
        self._ends.clear()
        self._counts = dict.fromkeys(STEP_RULES, 0)

    def sums(self, table: str) -> WindowSums:
        """The sums of a table by key."""
        return self._sums[table]

    def whole(self, table: str) -> tuple[int, int]:
        """What shares are parts of: of the window, and since the start."""
        sums = self._sums[table]
        column = SUMS[table].index(_WHOLE_OF[table])
        recent = sums.recent[:, column]
        whole = sums.whole[:, column]
        if table == WAITS:
            is_idle = self._idle(len(whole))
            recent = recent[~is_idle]
            whole = whole[~is_idle]
        return int(recent.sum()), int(whole.sum())

    def _idle(self, rows: int) -> np.ndarray:
        """Which of so many rows of waits are of threads without work."""
        labels = self.known.labels[WAITS]
        states = [state for state, _ in labels[:rows]]
        are_idle = [state == IDLE for state in states]
        return np.array(are_idle, np.bool_)

    @property
    def _begin_ns(self) -> int:
        """When the window begins."""
        return max(self._cpu.begin_ns, self.since_ns)

    @property
    def window_ns(self) -> int:
        """How long the window is so far."""
        return max(self._cpu.end_ns - self._begin_ns, BUCKET_NS)

    def facts(self) -> Facts:
        """What there is to say now."""
        threads = self._sums[THREADS].recent
        levels = [level for level in self.known.processes.values() if not level.is_over]
        has_samples = self.known.has_samples
        cpu = threads[:, _CPU] if has_samples else self._cpu.recent
        return Facts(
            self.until_ns,
            self.window_ns,
            int(cpu.sum()),
            int(threads[:, _READY].sum()) if has_samples else None,
            len(levels),
            _sum([level.rss_bytes for level in levels]),
            _sum([level.rss_peak_bytes for level in levels]),
            _sum([level.threads for level in levels]),
            self._steps(),
            self.known.lost,
            has_samples,
        )

    def _steps(self) -> StepState:
        """By the strongest rule that has shown."""
        rule = next((rule for rule in STEP_RULES if self._counts[rule]), "")
        if not rule:
            return StepState()
        ends = self._ends[rule]
        step_ns = None
        if len(ends) >= _LEAST_STEPS:
            step_ns = (ends[-1] - ends[0]) // (len(ends) - 1)
        return StepState(rule, self._counts[rule], step_ns)


def _sum(values: list[int | None]) -> int | None:
    """None where nothing is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None

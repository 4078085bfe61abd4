"""How much more CPU time a step takes while it is recorded, found by comparing: stretches of a run
that were recorded with those in which the recording paused.

This has all that a recording costs inside the program, also what no clock of ours can see: caches
that it fills, interrupts, and threads that spin while another one is delayed.
"""

from __future__ import annotations

import statistics
from collections import deque

# A stretch with fewer steps says nothing.
LEAST_STEPS = 20
# Of each stretch and the one before it; the program may do something else by and by.
COMPARED = 15
# Seconds of one stretch.
SECONDS_MOST = 600
# A second in which a step takes so many times as much as in others of its stretch is left out: the
# program compiles, or evaluates.
UNUSUAL = 1.5
# Recording adds no more than this; a larger difference is one of the program.
ADDED_MOST = 0.5

Seconds = deque[tuple[int, int]]  # CPU time in ns, and steps


class StepCosts:
    """Takes what the program used, second by second, and compares stretches."""

    def __init__(self) -> None:
        self._is_open = True
        self._has_begun = False
        self._now: Seconds = deque(maxlen=SECONDS_MOST)
        self._before: float | None = None  # CPU time of a step in the stretch before
        self._ratios: deque[float] = deque(maxlen=COMPARED)  # of stretches that are over
        self.comparisons = 0  # pairs of stretches that were compared

    @property
    def added(self) -> float:
        """What recording adds to the CPU time of a step, as a share of it; 0: none, or not known.

        The median over pairs of stretches that follow each other.
        """
        ratio = self._ratio()
        ratios = [*self._ratios] if ratio is None else [*self._ratios, ratio]
        if not ratios:
            return 0.0
        return min(max(statistics.median(ratios) - 1, 0.0), ADDED_MOST)

    def add(self, is_open: bool, program_ns: int, steps: int) -> None:
        """CPU time and steps of a second in which the recording went on, or paused, all the
        time. What is before the first steps, and the second in which they begin, is no part of
        any.
        """
        had_begun, self._has_begun = self._has_begun, self._has_begun or steps > 0
        if not had_begun:
            return
        if is_open != self._is_open:
            self._end_stretch()
            self._is_open = is_open
        if steps:
            self._now.append((program_ns, steps))

    def _end_stretch(self) -> None:
        ratio = self._ratio()
        if ratio is not None:
            self._ratios.append(ratio)
            self.comparisons += 1
        self._before = _step_ns(self._now)
        self._now.clear()

    def _ratio(self) -> float | None:
        """CPU time of a recorded step over that of one that was not, in this stretch and the one
        before it; None: one of them has too few steps.
        """
        now, before = _step_ns(self._now), self._before
        if not now or not before:
            return None
        return now / before if self._is_open else before / now


def _step_ns(seconds: Seconds) -> float | None:
    """CPU time of a step; None: there are too few."""
    if not seconds:
        return None
    most_ns = UNUSUAL * statistics.median(ns / steps for ns, steps in seconds)
    usual = [(ns, steps) for ns, steps in seconds if ns / steps <= most_ns]
    steps = sum(steps for _, steps in usual)
    return sum(ns for ns, _ in usual) / steps if steps >= LEAST_STEPS else None

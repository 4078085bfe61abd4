"""How much more CPU time a step takes while it is recorded, found by comparing: stretches of a run
that were recorded with those in which the recording paused.

This has all that a recording costs inside the program, also what no clock of ours can see: caches
that it fills, interrupts, and threads that spin while another one is delayed.
"""

from __future__ import annotations

import statistics

# A stretch with fewer steps says nothing.
LEAST_STEPS = 20
# Of each stretch and the one before it; the program may do something else by and by.
COMPARED = 15


class StepCosts:
    """Takes what the program used, second by second, and compares stretches."""

    def __init__(self) -> None:
        self._is_open = True
        self._has_begun = False
        self._stretch = 0, 0  # CPU time in ns, and steps, of the stretch that goes on
        self._before: tuple[int, int] | None = None  # of the one before it
        self._ratios: list[float] = []  # of stretches that are over

    @property
    def added(self) -> float:
        """What recording adds to the CPU time of a step, as a share of it; 0: none, or not known.

        The median over pairs of stretches that follow each other.
        """
        ratios = self._ratios[-COMPARED:] + self._ratio()
        return max(statistics.median(ratios) - 1, 0.0) if ratios else 0.0

    @property
    def comparisons(self) -> int:
        """How many pairs of stretches were compared."""
        return len(self._ratios) + len(self._ratio())

    def add(self, is_open: bool, program_ns: int, steps: int) -> None:
        """CPU time and steps of a second in which the recording went on, or paused, all the
        time. What is before the first steps, and the second in which they begin, is no part of
        any.
        """
        had_begun, self._has_begun = self._has_begun, self._has_begun or steps > 0
        if not had_begun:
            return
        if is_open != self._is_open:
            self._ratios += self._ratio()
            self._before, self._stretch, self._is_open = self._stretch, (0, 0), is_open
        self._stretch = self._stretch[0] + program_ns, self._stretch[1] + steps

    def _ratio(self) -> list[float]:
        """CPU time of a recorded step over that of one that was not, in this stretch and the one
        before it; empty: one of them has too few steps.
        """
        if self._before is None or min(self._before[1], self._stretch[1]) < LEAST_STEPS:
            return []
        now, then = (ns / steps for ns, steps in (self._stretch, self._before))
        if min(now, then) <= 0:
            return []
        return [now / then if self._is_open else then / now]

"""When a recording goes on, and when it pauses so that it costs no more than a share of the
program's CPU time.

What may be used is an account: CPU time of the program adds a share of it, CPU time of the
recording is taken off. A recording that has used more than there is pauses, and goes on when there
is enough for another stretch that costs as much as the last seconds did. The first seconds are
recorded whatever they cost, and are not in the account. One that has used a good part of its share
pauses once in any case, where the program makes steps: what it costs inside the program shows when
recorded steps are compared with others (`step_costs.py`).

A program that waits earns nothing, while our processes look for it all the time: that is no debt.
"""

from __future__ import annotations

import math
from collections import deque

# All of these are seconds. The first ones belong to imports and to the first steps.
FIRST_S = 3.0
# Shorter ones hold few whole steps, and each stretch has a sampler started anew.
LEAST_STRETCH_S = LEAST_PAUSE_S = 3.0
# The longer a run, the longer its stretches: a thousand of them are enough for days.
STRETCH_OF_RUN = 0.01
# Inside the program a recording may cost several times as much as it states.
COMPARED_FROM = 0.4  # of the share that it may use
# A program that uses less of a CPU waits: what it does next should be recorded.
IDLE_SHARE = 0.1


class Allowance:
    """The account of one recording, which may use `share` of the program's CPU time."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.is_open = True
        self.pauses = 0
        self.was_compared = False  # the first pause was there to compare
        self.paused_s = 0.0
        self.first_pause_s = 0.0
        self._begin: tuple[int, int] | None = None  # CPU time in ns: of the program, of ours
        self._last = 0, 0  # the same, when it was looked at last
        self._looked_s = 0.0
        self._left_ns = 0.0
        self._changed_s = FIRST_S  # when it was opened or closed last
        # What was left in the account in the last seconds, and how much of it a stretch takes.
        self._recent_ns: deque[float] = deque([0.0], maxlen=1 + round(LEAST_STRETCH_S))
        self._stretch_ns = 0.0

    @property
    def used_share(self) -> float:
        """CPU time of the recording over that of the program, since the first seconds."""
        if self._begin is None:
            return 0.0
        program_ns, ours_ns = self._last[0] - self._begin[0], self._last[1] - self._begin[1]
        return ours_ns / max(program_ns, 1)

    def look(self, at_s: float, program_ns: int, ours_ns: int, makes_steps: bool = False) -> bool:
        """Whether to record from now on.

        `at_s`: seconds since the program began; `program_ns`, `ours_ns`: CPU time used until now;
        `makes_steps`: whether it makes so many steps that recorded ones can be compared with
        others.
        """
        if at_s < FIRST_S:
            return True
        if self._begin is None:
            self._begin = self._last = program_ns, ours_ns
            self._changed_s = at_s
        is_idle = self._enter(at_s, program_ns, ours_ns)
        if self.is_open and not is_idle and self._is_over(at_s, makes_steps):
            taken_ns = self._recent_ns[0] - self._left_ns
            a_second_ns = taken_ns / (len(self._recent_ns) - 1)
            self._stretch_ns = a_second_ns * self._stretch_s(at_s)
            self._change(at_s)
        elif not self.is_open and self._is_paid(at_s):
            self.paused_s += at_s - self._changed_s
            self._change(at_s)
        return self.is_open

    def finish(self, at_s: float) -> None:
        """The program has ended."""
        if not self.is_open:
            self.paused_s += at_s - self._changed_s
            self._changed_s = at_s

    def _enter(self, at_s: float, program_ns: int, ours_ns: int) -> bool:
        """Bring the account up to date; whether the program waits."""
        used_ns = program_ns - self._last[0]
        taken_ns = ours_ns - self._last[1]
        passed_ns = 1e9 * (at_s - self._looked_s)
        self._last, self._looked_s = (program_ns, ours_ns), at_s
        is_idle = used_ns < IDLE_SHARE * passed_ns
        least_ns = min(self._left_ns, 0.0) if is_idle else -math.inf
        left_ns = self._left_ns + self.share * used_ns - taken_ns
        self._left_ns = max(left_ns, least_ns)
        self._recent_ns.append(self._left_ns)
        return is_idle

    @staticmethod
    def _stretch_s(at_s: float) -> float:
        """How long a stretch is at least."""
        return max(LEAST_STRETCH_S, STRETCH_OF_RUN * at_s)

    def _is_over(self, at_s: float, makes_steps: bool) -> bool:
        if at_s - self._changed_s < self._stretch_s(at_s):
            return False
        if self._left_ns < 0:
            return True
        if self.pauses or not makes_steps or self.used_share <= COMPARED_FROM * self.share:
            return False
        self.was_compared = True
        return True

    def _is_paid(self, at_s: float) -> bool:
        if at_s - self._changed_s < LEAST_PAUSE_S:
            return False
        return self._left_ns >= 0 and self._left_ns >= self._stretch_ns

    def _change(self, at_s: float) -> None:
        if self.is_open:
            self.pauses += 1
            self.first_pause_s = self.first_pause_s or at_s
        self.is_open = not self.is_open
        self._changed_s = at_s

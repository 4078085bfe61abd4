"""When a recording goes on, and when it pauses so that it costs no more than a share of the
program's CPU time.

What may be used is an account: CPU time of the program adds a share of it, CPU time of the
recording is taken off. A recording that has used more than there is pauses, and goes on when there
is enough for another stretch that costs as much as the last one. The first seconds are recorded
whatever they cost, and are not in the account. One that has used a good part of its share pauses
once in any case: what it costs inside the program shows by comparing (`step_costs.py`).
"""

from __future__ import annotations

# All of these are seconds. The first ones belong to imports and to the first steps.
FIRST_S = 3.0
# Shorter ones hold few whole steps, and each stretch has a sampler started anew.
LEAST_STRETCH_S = LEAST_PAUSE_S = 3.0
# The longer a run, the longer its stretches: a thousand of them are enough for days.
STRETCH_OF_RUN = 0.01
# Inside the program a recording may cost several times as much as it states.
COMPARED_FROM = 0.4  # of the share that it may use


class Allowance:
    """The account of one recording, which may use `share` of the program's CPU time."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.is_open = True
        self.pauses = 0
        self.paused_s = 0.0
        self.first_pause_s = 0.0
        self._begin: tuple[int, int] | None = None  # CPU time in ns: of the program, of ours
        self._used = 0, 0  # the same, since then
        self._changed_s = FIRST_S  # when it was opened or closed last
        self._then_ns = 0.0  # what was left in the account then
        self._stretch_ns = 0.0  # what the last stretch took out of the account

    @property
    def used_share(self) -> float:
        """CPU time of the recording over that of the program, since the first seconds."""
        program_ns, ours_ns = self._used
        return ours_ns / max(program_ns, 1)

    def look(self, at_s: float, program_ns: int, ours_ns: int) -> bool:
        """Whether to record from now on.

        `at_s`: seconds since the program began; `program_ns`, `ours_ns`: CPU time used until now.
        """
        if at_s < FIRST_S:
            return True
        if self._begin is None:
            self._begin = program_ns, ours_ns
            self._changed_s = at_s
        self._used = program_ns - self._begin[0], ours_ns - self._begin[1]
        left_ns = self.share * self._used[0] - self._used[1]
        if self.is_open and self._is_over(at_s, left_ns):
            self._stretch_ns = self._then_ns - left_ns
            self._change(at_s, left_ns)
        elif not self.is_open and self._is_paid(at_s, left_ns):
            self.paused_s += at_s - self._changed_s
            self._change(at_s, left_ns)
        return self.is_open

    def finish(self, at_s: float) -> None:
        """The program has ended."""
        if not self.is_open:
            self.paused_s += at_s - self._changed_s
            self._changed_s = at_s

    def _is_over(self, at_s: float, left_ns: float) -> bool:
        stretch_s = max(LEAST_STRETCH_S, STRETCH_OF_RUN * at_s)
        if at_s - self._changed_s < stretch_s:
            return False
        has_to_compare = not self.pauses and self.used_share > COMPARED_FROM * self.share
        return left_ns < 0 or has_to_compare

    def _is_paid(self, at_s: float, left_ns: float) -> bool:
        if at_s - self._changed_s < LEAST_PAUSE_S:
            return False
        return left_ns >= 0 and left_ns >= self._stretch_ns

    def _change(self, at_s: float, left_ns: float) -> None:
        if self.is_open:
            self.pauses += 1
            self.first_pause_s = self.first_pause_s or at_s
        self.is_open = not self.is_open
        self._changed_s, self._then_ns = at_s, left_ns

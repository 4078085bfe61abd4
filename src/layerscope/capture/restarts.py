"""How often one of our own processes that has ended in the middle of a run is started again."""

from __future__ import annotations

import collections
import time

# One that is killed now and then is replaced at once. One that cannot live must not take the
# program's CPU.
_MOST_STARTS = 3
_WITHIN_S = 10.0


class Restarts:
    """Counts the ends of one kind of process, and says when the next may start."""

    def __init__(self) -> None:
        self.ends = 0
        self._starts: collections.deque[float] = collections.deque(maxlen=_MOST_STARTS)

    def note_start(self) -> None:
        """One was started now, or could not be."""
        self._starts.append(time.monotonic())

    def may_start(self) -> bool:
        """Whether fewer than three were started in the last ten seconds."""
        return len(self._starts) < _MOST_STARTS or time.monotonic() - self._starts[0] > _WITHIN_S

    def note_end(self, who: str, how: str) -> str:
        """Process `who` has ended in the way `how`; a sentence about all that have."""
        self.ends += 1
        return (
            f"{who} {how}"
            if self.ends == 1
            else f"{who} ended {self.ends} times; the last one {how}"
        )

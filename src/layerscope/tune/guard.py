"""Memory that a trial may take, so that a setting that needs too much of it ends before the machine does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerscope.host import cgroup, memory

# Of what is left when the trial starts, this much stays for everybody else.
_SPARED_SHARE = 0.1
# The machine is short of memory when less than this is left of it.
SHORT_SHARE = 0.05
# A trial that takes this much more than the defaults is not what should be chosen where memory is short.
_TIMES_THE_USUAL = 2.0


@dataclass(frozen=True, slots=True)
class Guard:
    """`most_bytes`: what the trial may take, None: nobody tells what is left. `usual_bytes`: what the defaults took, 0
    where it is not known yet.
    """

    most_bytes: int | None = None
    usual_bytes: int = 0

    def objects_to(self, used_bytes: int, left: tuple[int, int] | None) -> bool:
        """Whether a trial that holds `used_bytes` has to end; `left`: bytes left for us now, and of how many."""
        if self.most_bytes is not None and used_bytes > self.most_bytes:
            return True
        is_short = left is not None and left[0] < SHORT_SHARE * left[1]
        return bool(is_short and self.usual_bytes and used_bytes > _TIMES_THE_USUAL * self.usual_bytes)


def made(usual_bytes: int) -> Guard:
    """The guard of a trial that starts now."""
    left = memory_left()
    return Guard(None if left is None else round(left[0] * (1 - _SPARED_SHARE)), usual_bytes)


def memory_left(root: Path = Path("/")) -> tuple[int, int] | None:
    """Bytes that processes of ours can still take, and of how many: of the machine or, if tighter, of the control
    group. None where neither is told.
    """
    found = []
    machine, limits = memory.facts(root), cgroup.facts(root)
    if machine.available_bytes is not None and machine.total_bytes:
        found.append((machine.available_bytes, machine.total_bytes))
    if limits.memory_limit_bytes is not None:
        found.append((max(0, limits.memory_limit_bytes - limits.memory_used_bytes), limits.memory_limit_bytes))
    return min(found, default=None)

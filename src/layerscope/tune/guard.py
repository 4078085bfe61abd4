"""Memory that a trial may take, so that a setting that needs too much of it ends before the machine
does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from layerscope.host import cgroup, memory

# Memory is short when less than this is left of it.
_SHORT_SHARE = 0.1
# Of what is left when the trial starts, it has taken that away itself when it holds more than this.
_MOST_SHARE = 0.8
# A trial that takes this much more than the defaults is not what should be chosen where memory is
# short.
_TIMES_THE_USUAL = 2.0


class Guard(Struct, frozen=True):
    """`short_bytes`: memory is short when less than this is left; `most_bytes`: what the trial may
    take then, None: nobody tells what is left; `usual_bytes`: what the defaults took, 0 where it is
    not known yet.
    """

    most_bytes: int | None = None
    usual_bytes: int = 0
    short_bytes: int = 0

    def objects_to(self, used_bytes: int, left: Callable[[], tuple[int, int] | None]) -> bool:
        """Whether a trial that holds `used_bytes` has to end; `left` is `memory_left`.

        Pages that its processes share count for each in `used_bytes`, so that alone says nothing.
        """
        is_large = self.most_bytes is not None and used_bytes > self.most_bytes
        is_large |= bool(self.usual_bytes and used_bytes > _TIMES_THE_USUAL * self.usual_bytes)
        now = left() if is_large else None
        return now is not None and now[0] < self.short_bytes


def made(usual_bytes: int) -> Guard:
    """The guard of a trial that starts now."""
    left = memory_left()
    if left is None:
        return Guard(None, usual_bytes)
    all_bytes, short_bytes = left
    most_bytes = round(all_bytes * _MOST_SHARE)
    short_most_bytes = round(short_bytes * _SHORT_SHARE)
    return Guard(most_bytes, usual_bytes, short_most_bytes)


def memory_left(root: Path = Path("/")) -> tuple[int, int] | None:
    """Bytes that processes of ours can still take, and of how many: of the machine or, if tighter,
    of the control group. None where neither is told.
    """
    found = []
    machine, limits = memory.facts(root), cgroup.facts(root)
    if machine.available_bytes is not None and machine.total_bytes:
        found.append((machine.available_bytes, machine.total_bytes))
    if limits.memory_limit_bytes is not None:
        found.append(
            (
                max(0, limits.memory_limit_bytes - limits.memory_used_bytes),
                limits.memory_limit_bytes,
            )
        )
    return min(found, default=None)

"""How long a thread has not run, as the scheduler tells it: a lower bound of how long it waits.

/proc/PID/task/TID/sched has when the thread was last accounted for, by the scheduler's clock of the
CPU it was on. What that clock says now is asked for by running there ourselves for a moment. It
stands still while a virtual machine has the CPU taken away, so that more time may have passed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from layerscope.host import files

_NS_PER_MS = 1_000_000
# Of proc(5)'s stat, behind the name: 39 processor.
_CPU_FIELD = 36
_LAST = "se.exec_start"


class LastRan:
    """Asks about threads. `close` lets us run on any CPU again."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root`: the folder that has /proc."""
        self._proc = root / "proc"
        self._allowed = os.sched_getaffinity(0)
        self._now_ns: dict[int, int | None] = {}

    def __enter__(self) -> LastRan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let us run where we could run before."""
        if self._now_ns:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self._allowed)

    def since_ns(self, pid: int, tid: int) -> int | None:
        """For how long at least the thread has not run; None: that is not told."""
        thread = self._proc / str(pid) / "task" / str(tid)
        words = files.text(thread / "stat").rpartition(")")[2].split()
        cpu = files.whole(words[_CPU_FIELD]) if len(words) > _CPU_FIELD else None
        if cpu is None:
            return None
        now_ns = self._now(cpu)
        last_ns = _last_ns(thread / "sched")
        if now_ns is None or last_ns is None:
            return None
        return max(now_ns - last_ns, 0)

    def _now(self, cpu: int) -> int | None:
        """What the clock of a CPU said when it was first asked for."""
        known = self._now_ns
        if cpu not in known:
            known[cpu] = self._ask(cpu)
        return known[cpu]

    def _ask(self, cpu: int) -> int | None:
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError:  # it is none of ours
            return None
        return _last_ns(self._proc / "thread-self" / "sched")


def _last_ns(path: Path) -> int | None:
    """When the thread was last accounted for, by this file of it; None: it does not say."""
    text = files.text(path)
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == _LAST:
            with contextlib.suppress(ValueError):
                return round(float(value) * _NS_PER_MS)
    return None

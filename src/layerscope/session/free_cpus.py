"""Whether the program leaves a CPU to somebody else.

What runs beside busy cores takes more than its own CPU time: threads of OpenMP spin while one of
their team is kept off its CPU (measured: half as much again and more).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from layerscope.host.cgroup import group_of
from layerscope.host.noise import cpu_time


class _Reading(NamedTuple):
    """At one time: idle ticks of the CPUs that we may use, None where the kernel does not tell; our
    own CPU time; and how often the limit of the group has held somebody up.
    """

    at_s: float
    idle_ticks: int | None
    used_s: float
    throttled: int


class FreeCpus:
    """How much CPU time nobody but this process has used since it was asked last.

    `root`: of the file systems that tell it; `passed_s`, `used_s`: clocks, in seconds.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        passed_s: Callable[[], float] = time.monotonic,
        used_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._root, self._passed_s, self._used_s = root, passed_s, used_s
        self._group = group_of(root=root)
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._before = self._read()

    def of_late(self) -> float:
        """CPUs that were free, those of this process with them; infinite where the kernel does not
        tell, 0 where the limit of the control group held somebody up.
        """
        before, now = self._before, self._read()
        self._before = now
        passed_s = now.at_s - before.at_s
        if now.idle_ticks is None or before.idle_ticks is None or passed_s <= 0:
            return math.inf
        if now.throttled > before.throttled:
            return 0.0
        idle_s = (now.idle_ticks - before.idle_ticks) / self._ticks
        return (idle_s + now.used_s - before.used_s) / passed_s

    def _read(self) -> _Reading:
        times = cpu_time(self._root, os.sched_getaffinity(0))
        throttled = self._group.usage().throttled or 0
        idle = times.idle if times is not None else None
        return _Reading(self._passed_s(), idle, self._used_s(), throttled)

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

from layerscope.host.cgroup import group_of
from layerscope.host.noise import cpu_time


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
        passed_s = now[0] - before[0]
        if now[1] is None or before[1] is None or passed_s <= 0:
            return math.inf
        if now[3] > before[3]:
            return 0.0
        idle_s = (now[1] - before[1]) / self._ticks
        return (idle_s + now[2] - before[2]) / passed_s

    def _read(self) -> tuple[float, int | None, float, int]:
        """The time, idle ticks of the CPUs that we may use, our own CPU time, and how often the
        limit of the group has held somebody up.
        """
        times = cpu_time(self._root, os.sched_getaffinity(0))
        throttled = self._group.usage().throttled or 0
        idle = times.idle if times is not None else None
        return self._passed_s(), idle, self._used_s(), throttled

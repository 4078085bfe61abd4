"""Who started a process, and who started that one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_STARTED = 19  # its place behind the name


def lineage(pid: int) -> Iterator[int]:
    """The process, its parent, and so on up, without the first one of all."""
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            return


def descends(pid: int, ancestor: int) -> bool:
    """Whether the living process `pid` is `ancestor` or a descendant of it."""
    if ancestor <= 1:
        return False
    return ancestor in lineage(pid)


def began_ns(pid: int) -> int:
    """When the process began, on CLOCK_MONOTONIC, up to one TICK_NS too early; 0: it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(
        time.CLOCK_MONOTONIC
    )
    return int(words[_STARTED]) * TICK_NS - suspended_ns

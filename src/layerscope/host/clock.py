"""The clocks of this machine: whether its time stamp counter is one, and which CLOCK_MONOTONIC it
has.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from layerscope.host import files

_NS_PER_S = 1_000_000_000
# Of proc(5)'s stat, behind the name: 22 starttime.
_START_FIELD = 19


def tsc_is_usable(root: Path = Path("/")) -> bool:
    """True when the kernel itself keeps time by the TSC and the CPU says that it neither varies nor
    stops.
    """
    source = files.text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source != "tsc":
        return False
    lines = files.text(root / "proc/cpuinfo").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    wanted = {"constant_tsc", "nonstop_tsc"}
    return wanted <= set(flags.split())


def boot(root: Path = Path("/")) -> str:
    """The kernel's name for the time since it was started, another one each time; empty where it
    does not tell.
    """
    return files.text(root / "proc/sys/kernel/random/boot_id")


def monotonic_clock(root: Path = Path("/")) -> str:
    """A name for the CLOCK_MONOTONIC that this process reads: where it is the same, times can be
    compared as they are.

    It starts anew with every boot, and a time namespace may shift it. Empty where the kernel does
    not tell.
    """
    name = boot(root)
    if not name:
        return ""
    try:
        return f"{name} {os.readlink(root / 'proc/self/ns/time')}"
    except OSError:  # a kernel without time namespaces
        return name


def ahead_ns(pid: int, root: Path = Path("/")) -> int:
    """By how much the CLOCK_MONOTONIC of process `pid` is ahead of ours: it may be in another time
    namespace.

    0 where that is not known: it has ended, or there are no time namespaces.
    """
    theirs, ours = (_offset_ns(root / "proc" / name) for name in (str(pid), "self"))
    return 0 if theirs is None or ours is None else theirs - ours


def started_ns(pid: int, root: Path = Path("/")) -> int:
    """When the process was started, by our CLOCK_MONOTONIC, which stands still while the machine
    sleeps; 0: it is not known.
    """
    # The name in parentheses may hold spaces and parentheses itself: split after the last one.
    words = files.text(root / "proc" / str(pid) / "stat").rpartition(")")[2].split()
    ticks = files.whole(words[_START_FIELD]) if len(words) > _START_FIELD else None
    if ticks is None:
        return 0
    slept_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return max(ticks * (_NS_PER_S // os.sysconf("SC_CLK_TCK")) - slept_ns, 0)


def _offset_ns(process: Path) -> int | None:
    try:
        lines = (process / "timens_offsets").read_text().splitlines()
    except OSError:
        return None
    for name, seconds, rest_ns in map(str.split, lines):
        if name == "monotonic":
            return int(seconds) * 1_000_000_000 + int(rest_ns)
    return None

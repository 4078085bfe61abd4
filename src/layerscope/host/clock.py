"""Whether the time stamp counter of this machine can be used as a clock."""

from __future__ import annotations

from pathlib import Path


def tsc_is_usable(root: Path = Path("/")) -> bool:
    """True when the kernel itself keeps time by the TSC and the CPU says that it neither varies nor stops."""
    try:
        source = (root / "sys/devices/system/clocksource/clocksource0/current_clocksource").read_text()
        cpu = (root / "proc/cpuinfo").read_text()
    except OSError:
        return False
    flags = next((line for line in cpu.splitlines() if line.startswith("flags")), "").split()
    return source.strip() == "tsc" and {"constant_tsc", "nonstop_tsc"} <= set(flags)

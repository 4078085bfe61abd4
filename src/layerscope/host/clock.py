"""The clocks of this machine: whether its time stamp counter is one, and which CLOCK_MONOTONIC it has."""

from __future__ import annotations

import os
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


def monotonic_clock(root: Path = Path("/")) -> str:
    """A name for the CLOCK_MONOTONIC that this process reads: where it is the same, times can be compared as they are.

    It starts anew with every boot, and a time namespace may shift it. Empty where the kernel does not tell.
    """
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    try:
        return f"{boot} {os.readlink(root / 'proc/self/ns/time')}"
    except OSError:  # a kernel without time namespaces
        return boot

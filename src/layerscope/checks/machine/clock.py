"""Which clock the kernel reads: a slow one makes every measurement of time a system call."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import OK, UNSEEN, WARNING, Check, Seen

ORDER = 130

# Clocks that cannot be read without the kernel (linux/Documentation/timers, vdso(7)).
_SLOW = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen", "pit")


def check(seen: Seen) -> Iterator[Check]:
    """One judgement."""
    source = seen.machine.cpu.clocksource
    if not source:
        yield Check("clock", "clock", UNSEEN, "the kernel does not report it")
    elif source in _SLOW:
        yield Check(
            "clock",
            "clock",
            WARNING,
            f"the kernel's is {source}",
            "Each look at the clock is a system call of a microsecond: profilers and frameworks "
            "look often.",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
    else:
        yield Check("clock", "clock", OK, f"the kernel's is {source}")

"""Numbers as people read them: durations, sizes and counts with their unit. Used by `show`
alone.
"""

from __future__ import annotations

_NS_PER_S = 1_000_000_000
_TIME_STEPS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_BYTE_STEPS = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))


def duration(dur_ns: float) -> str:
    """`dur_ns` with three significant digits and its unit: `2.92 ms`."""
    for step, unit in _TIME_STEPS:
        if abs(dur_ns) >= step:
            return f"{three_digits(dur_ns / step)} {unit}"
    return f"{round(dur_ns)} ns"


def elapsed(ns: int) -> str:
    """Whole seconds, and minutes and hours where there are any: `3 min 05 s`."""
    seconds = ns // _NS_PER_S
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min"


def size(size_bytes: float) -> str:
    """`size_bytes` in decimal units: `6.4 MB`."""
    for step, unit in _BYTE_STEPS:
        if abs(size_bytes) >= step:
            return f"{three_digits(size_bytes / step)} {unit}"
    return f"{round(size_bytes)} bytes"


def amount(value: float) -> str:
    """A count, or a mean of counts: 391, 2.5, 0.4, <0.1."""
    is_near_whole = value > 0.5 and abs(value - round(value)) < 0.005
    if value == 0 or value >= 100 or is_near_whole:
        return f"{value:,.0f}"
    if value < 0.1:
        return "<0.1"
    return f"{value:.1f}"


def three_digits(value: float) -> str:
    """`value` with three significant digits and no exponent: 2.92, 31.4, 351, 1,204."""
    for limit, digits in ((9.995, 2), (99.95, 1)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def percent(share: float) -> str:
    """A share in whole percent."""
    if 0 < share < 0.005:
        return "<1 %"
    return f"{100 * share:.0f} %"

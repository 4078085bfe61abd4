"""One line of the summary: which rank, or which device, the others wait for."""

from __future__ import annotations

from layerscope.analyse.late_devices import LateDevice
from layerscope.analyse.ranks import SLOWER, SlowestRank
from layerscope.model import units

_UNKNOWN = "how much of it is waiting for other ranks is not known"


def rank_line(slowest: SlowestRank) -> str:
    """Who is slowest and what that costs the others; or that all work alike."""
    time = units.duration(slowest.work_ns)
    is_known = slowest.others_wait_ns is not None
    if slowest.over < SLOWER:
        who = f"rank {slowest.rank} is the slowest, with {time}"
        if is_known:
            return f"{slowest.ranks} ranks work alike: {who} of its own work in a step"
        return f"steps of {slowest.ranks} ranks take alike: {who}; {_UNKNOWN}"
    others = "the other" if slowest.ranks == 2 else "the others"
    work = f"{time} of its own work in a step" if is_known else f"{time} a step"
    line = (
        f"rank {slowest.rank} of {slowest.ranks} is the slowest: {work}, "
        f"{100 * slowest.over:.0f} % more than {others}"
    )
    if slowest.others_wait_ns is None:
        return f"{line}; {_UNKNOWN}"
    wait = "it waits" if slowest.ranks == 2 else "they wait"
    return f"{line}; {wait} {units.duration(slowest.others_wait_ns)} in a step"


def device_line(late: LateDevice) -> str:
    """Which device of a program the others wait for."""
    wait = units.duration(late.wait_ns)
    return (
        f"By device: device {late.device} comes last to {late.last:,} of {late.meetings:,} "
        f"collectives; the others wait {wait} for it each time"
    )

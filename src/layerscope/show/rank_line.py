"""One line of the summary: which rank the others wait for."""

from __future__ import annotations

from layerscope.analyse.ranks import SLOWER, SlowestRank
from layerscope.model import units


def rank_line(slowest: SlowestRank) -> str:
    """Who is slowest and what that costs the others; or that all work alike."""
    work = f"{units.duration(slowest.work_ns)} of its own work in a step"
    if slowest.over < SLOWER:
        return f"{slowest.ranks} ranks work alike: rank {slowest.rank} is the slowest, with {work}"
    others = "the other" if slowest.ranks == 2 else "the others"
    who = f"rank {slowest.rank} of {slowest.ranks} is the slowest"
    line = f"{who}: {work}, {100 * slowest.over:.0f} % more than {others}"
    if slowest.others_wait_ns is None:
        return line
    wait = "it waits" if slowest.ranks == 2 else "they wait"
    return f"{line}; {wait} {units.duration(slowest.others_wait_ns)} in a step"

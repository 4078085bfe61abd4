"""When a framework's own profiler recorded nothing of a process that it records in segments: while
one was written, behind the last one, in one that was lost, and while the program used that profiler
itself. Used by `logs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from layerscope.model import units
from layerscope.model.clocks import Conversion
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.sources.process import NO_SEGMENT, Loss
from layerscope.sources.raw.decoder import Decoder
from layerscope.sources.raw.profile_files import ProfileFile, profiles_in

# Less than this share of the time is a matter of the table `gaps` alone.
_TOLD_SHARE = 0.01
# So many times at which the program used the profiler itself are named.
_MOST_NAMED = 3

# From when to when, on CLOCK_REALTIME.
Stretch = tuple[int, int]
Stretches = Sequence[Stretch]


def unrecorded(raw: Path, process: Decoder) -> tuple[list[Loss], list[Problem]]:
    """The stretches of a process that no segment in `raw` has, and what has to be said of them."""
    mine = [one for one in profiles_in(raw) if one.pid == process.about.get("pid")]
    segments = [one for one in mine if _is_segment(one)]
    if not process.readings:
        return [], []
    clock = Conversion()
    for _, run_ns, realtime_ns, _ in process.readings:
        clock.add(realtime_ns, run_ns)
    ended_ns = process.readings[-1][2]
    own = list(_own(mine, ended_ns))
    left_out = list(_stretches(segments, ended_ns))
    unwritten = [one.about["begun_realtime_ns"] for one in segments if not one.has_ended]
    missed = [_behind(one, own) for one in left_out if one[0] not in unwritten]
    hidden = [one for one in own if not any(_meet(one, other) for other in left_out)]
    stretches = np.array([*left_out, *hidden], np.int64).reshape(-1, 2)
    ticks = process.to_ticks().to_run(clock.to_run(stretches))
    losses = [Loss(0, start, end, None, NO_SEGMENT) for start, end in sorted(ticks.tolist())]
    problems = [*_told_own(own, process, clock)]
    if segments:
        first_ns = segments[0].about["begun_realtime_ns"]
        problems += _told(missed, ended_ns - first_ns)
    return losses, problems


def _is_segment(profile: ProfileFile) -> bool:
    """Whether it is one of the segments that have all of a process: others have what one session
    did.
    """
    is_whole = profile.about.get("is_whole") is True
    return is_whole and isinstance(profile.about.get("begun_realtime_ns"), int)


def _own(profiles: Sequence[ProfileFile], ended_ns: int) -> Iterator[Stretch]:
    """When the program used the profiler itself, the last time perhaps to its end."""
    for profile in profiles:
        told = profile.about.get("away")
        for one in told if isinstance(told, list) else ():
            from_ns, until_ns = one
            yield from_ns, max(from_ns, ended_ns if until_ns is None else until_ns)


def _meet(one: Stretch, other: Stretch) -> bool:
    """Whether two stretches have a moment in common."""
    begins_before_end = one[0] <= other[1]
    return begins_before_end and other[0] <= one[1]


def _behind(one: Stretch, own: Stretches) -> Stretch:
    """What of a stretch is behind those of the program's own that meet it."""
    from_ns, until_ns = one
    for other in own:
        if _meet(one, other):
            from_ns = max(from_ns, other[1])
    return from_ns, max(from_ns, until_ns)


def _stretches(segments: Sequence[ProfileFile], ended_ns: int) -> Iterator[Stretch]:
    """From when to when nothing is recorded. `ended_ns`: when the process had ended."""
    from_ns = None
    for segment in segments:
        begun_ns = segment.about["begun_realtime_ns"]
        until_ns = segment.about.get("ended_realtime_ns")
        if from_ns is not None:
            yield from_ns, max(from_ns, begun_ns)
        is_there = isinstance(until_ns, int) and bool(segment.files())
        from_ns = until_ns if is_there else begun_ns
        if is_there and segment.about.get("is_asked"):  # the program has ended, or pauses
            from_ns = None
    if from_ns is not None:
        yield from_ns, max(from_ns, ended_ns)


def _told(stretches: Stretches, whole_ns: int) -> Iterator[Problem]:
    """The sentence where much is missing, but for what was lost, of which there is another one."""
    missing_ns = sum(until_ns - from_ns for from_ns, until_ns in stretches)
    if missing_ns <= _TOLD_SHARE * whole_ns:
        return
    count = sum(until_ns > from_ns for from_ns, until_ns in stretches)
    times = "1 stretch" if count == 1 else f"{count:,} stretches"
    what = (
        f"the framework's own profiler was not recording for {units.duration(missing_ns)} in "
        f"{times}: while it wrote what it had, to keep within the budget, or after it ended"
    )
    remedy = (
        "see the table `gaps` for when; record a window of the run (--after, --for), or all of it "
        "(--budget none)"
    )
    yield Problem(OPERATORS, "segments_apart", what, remedy, "operators and steps of these times")


def _told_own(own: Stretches, process: Decoder, clock: Conversion) -> Iterator[Problem]:
    """From when to when the program used the profiler itself."""
    if not own:
        return
    began_ns = process.about.get("start_ns", process.readings[0][1])
    moments_s = (clock.to_run(np.array(own[:_MOST_NAMED])) - began_ns) / 1e9
    ended_s = (process.readings[-1][1] - began_ns) / 1e9
    named = [
        f"from {begun:.2f} s on" if until >= ended_s else f"{begun:.2f} to {until:.2f} s"
        for begun, until in moments_s.tolist()
    ]
    more = f" and {len(own) - _MOST_NAMED:,} more times" if len(own) > _MOST_NAMED else ""
    pid = process.about.get("pid")
    what = (
        f"the program used the framework's own profiler itself ({', '.join(named)}{more}, counted "
        f"from the start of process {pid})"
    )
    remedy = "open the profile that it wrote by layerscope, or let it be profiled by us"
    yield Problem(OPERATORS, "segments_over", what, remedy, "operators and steps of these times")

"""When a framework's own profiler recorded nothing of a process that it records in segments: while
one was written, behind the last one, and in one that was lost. Used by `logs`.
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


def unrecorded(raw: Path, process: Decoder) -> tuple[list[Loss], list[Problem]]:
    """The stretches of a process that no segment in `raw` has, and what has to be said of them."""
    segments = [one for one in profiles_in(raw) if _is_segment_of(one, process)]
    if not segments or not process.readings:
        return [], []
    clock = Conversion()
    for _, run_ns, realtime_ns, _ in process.readings:
        clock.add(realtime_ns, run_ns)
    ended_ns = process.readings[-1][2]
    stretches = np.array(list(_stretches(segments, ended_ns)), np.int64).reshape(-1, 2)
    moments_ns = clock.to_run(stretches)
    ticks = process.to_ticks().to_run(moments_ns)
    losses = [Loss(0, start, end, None, NO_SEGMENT) for start, end in ticks.tolist()]
    first_ns = segments[0].about["begun_realtime_ns"]
    missing_ns = int(np.diff(moments_ns).sum())
    return losses, list(_told(missing_ns, ended_ns - first_ns, len(losses)))


def _is_segment_of(profile: ProfileFile, process: Decoder) -> bool:
    """Whether it is one of the segments that have all of the process: others have what one session
    did.
    """
    is_mine = profile.pid == process.about.get("pid")
    is_segment = is_mine and profile.about.get("is_whole") is True
    return is_segment and isinstance(profile.about.get("begun_realtime_ns"), int)


def _stretches(segments: Sequence[ProfileFile], ended_ns: int) -> Iterator[tuple[int, int]]:
    """From when to when nothing is recorded, on CLOCK_REALTIME. `ended_ns`: when the process had
    ended.
    """
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


def _told(missing_ns: int, whole_ns: int, count: int) -> Iterator[Problem]:
    """The sentence where much is missing."""
    if missing_ns <= _TOLD_SHARE * whole_ns:
        return
    times = "1 stretch" if count == 1 else f"{count:,} stretches"
    what = (
        f"the framework's own profiler was not recording for {units.duration(missing_ns)} in "
        f"{times}: while it wrote what it had, to keep within the budget, or behind its end"
    )
    remedy = (
        "see the table `gaps` for when; record a window of the run (--steps, --for), or all of it "
        "(--budget none)"
    )
    yield Problem(OPERATORS, "segments_apart", what, remedy, "operators and steps of these")

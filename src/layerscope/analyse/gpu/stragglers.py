"""Which rank came last to collectives, by how much, and what it did meanwhile that others did not.

Late: a rank that came behind the median of all ranks, by at least a microsecond and a fourth of
what the last one was behind. The window of a rank is the time from the end of the collective
before, on any group, to the start of this one. It is divided into parts: computation ran on the
GPU; else copies ran; else the program was in its data loader; else the GPU waited for the host,
which launched the next work only after the work before had ended; the rest is other waiting. The
reason is the part in which the late rank has most more than the median of all ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.gpu.clock_fit import NO_CHANGE
from layerscope.analyse.gpu.collectives import Collective, Job
from layerscope.analyse.gpu.intervals import Intervals, difference, merged
from layerscope.analyse.gpu.sweep import Int64s
from layerscope.analyse.gpu.work import COMMUNICATION, COMPUTE, COPY, GpuWork

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

PARTS = ("compute", "copy", "loader", "host", "other")
# Of less nobody is late: clocks and launches differ by as much.
LEAST_LATE_NS = 1_000
LEAST_LATE_SHARE = 0.25
_LOADING = """
    SELECT coalesce(rank, 0) AS rank, s.start_ns, s.start_ns + s.dur_ns AS end_ns
    FROM spans s JOIN tracks USING (track) JOIN processes USING (process)
    WHERE s.layer = 'operators' AND s.kind = 'loader' ORDER BY s.start_ns"""


@dataclass(frozen=True, slots=True)
class LateArrival:
    """That a rank came late to a collective. `late_ns`: behind the median of all ranks. `more_ns`:
    for each of PARTS, how much more of it the rank had than the median of all ranks.
    """

    rank: int
    is_last: bool
    late_ns: int
    more_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """What a rank did, as intervals on the clock of all that do not overlap, one for each of
    PARTS.
    """

    parts: tuple[Intervals, ...]

    def in_window(self, from_ns: int, until_ns: int) -> list[int]:
        """The time of each part between two moments."""
        return [part.within(from_ns, until_ns) for part in self.parts]


def late_arrivals(job: Job, timelines: Mapping[int, RankTimeline]) -> list[LateArrival]:
    """The ranks that were late, of each collective."""
    ended_ns: dict[int, int] = {}
    found = []
    for collective in job.collectives:
        found += _late(collective, ended_ns, timelines)
        for call in collective.calls:
            ended_ns[call.rank] = max(call.end_ns, ended_ns.get(call.rank, call.end_ns))
    return found


def _late(
    collective: Collective, ended_ns: Mapping[int, int], timelines: Mapping[int, RankTimeline]
) -> list[LateArrival]:
    starts_ns = np.array([call.start_ns for call in collective.calls], np.int64)
    late_ns = starts_ns - int(np.median(starts_ns))
    least_ns = max(LEAST_LATE_NS, LEAST_LATE_SHARE * late_ns.max())
    is_late = late_ns >= least_ns
    if not is_late.any():
        return []
    more_ns = _more_than_usual(collective, ended_ns, timelines)
    last = int(late_ns.argmax())
    found = []
    for place in np.flatnonzero(is_late).tolist():
        rank = collective.calls[place].rank
        parts_ns = tuple(more_ns[place].tolist())
        found.append(LateArrival(rank, place == last, int(late_ns[place]), parts_ns))
    return found


def _more_than_usual(
    collective: Collective, ended_ns: Mapping[int, int], timelines: Mapping[int, RankTimeline]
) -> Int64s:
    """Of each call the time of each of PARTS before it, less that of the median rank."""
    known_ns = [ended_ns[call.rank] for call in collective.calls if call.rank in ended_ns]
    # Before the first collective the windows of all begin together.
    first_ns = min(known_ns, default=0)
    times_ns = []
    for call in collective.calls:
        from_ns = ended_ns.get(call.rank, first_ns)
        times_ns.append(timelines[call.rank].in_window(from_ns, call.start_ns))
    usual_ns = np.median(times_ns, axis=0).astype(np.int64)
    return np.array(times_ns, np.int64) - usual_ns


def read_timelines(reader: Reader, work: GpuWork, job: Job) -> dict[int, RankTimeline]:
    """What each rank did."""
    loading = reader.query(_LOADING)
    loading_rank = loading["rank"].to_numpy()
    starts_ns = loading["start_ns"].to_numpy()
    ends_ns = loading["end_ns"].to_numpy()
    found = {}
    for rank in np.unique(work.rank).tolist():
        fit = job.fits.get(rank, NO_CHANGE)
        its = loading_rank == rank
        loads = merged(fit.corrected(starts_ns[its]), fit.corrected(ends_ns[its]))
        mine = work.chosen(work.rank == rank)
        found[rank] = _timeline(_on_clock(mine, fit.corrected), loads)
    return found


def _on_clock(work: GpuWork, corrected: object) -> GpuWork:
    import dataclasses

    assert callable(corrected)
    times = ("start_ns", "end_ns", "launch_ns", "launched_ns")
    return dataclasses.replace(work, **{name: corrected(getattr(work, name)) for name in times})


def _timeline(work: GpuWork, loads: Intervals) -> RankTimeline:
    computing = _of_kind(work, COMPUTE)
    copying = difference(_of_kind(work, COPY), computing)
    working = merged(
        np.concatenate((computing.start_ns, copying.start_ns)),
        np.concatenate((computing.end_ns, copying.end_ns)),
    )
    communicating = _of_kind(work, COMMUNICATION)
    idle, is_host = _idle(work)
    loading = difference(loads, working)
    waits = [
        Intervals(idle.start_ns[chosen], idle.end_ns[chosen]) for chosen in (is_host, ~is_host)
    ]
    host, other = (difference(difference(one, loading), communicating) for one in waits)
    return RankTimeline((computing, copying, loading, host, other))


def _of_kind(work: GpuWork, kind: int) -> Intervals:
    is_kind = work.kind == kind
    return merged(work.start_ns[is_kind], work.end_ns[is_kind])


def _idle(work: GpuWork) -> tuple[Intervals, np.ndarray]:
    """When nothing ran on any stream, and whether the host had launched nothing then."""
    order = np.argsort(work.start_ns, kind="stable")
    start_ns = work.start_ns[order]
    latest_ns = np.maximum.accumulate(work.end_ns[order])
    is_gap = start_ns[1:] > latest_ns[:-1]
    gaps = Intervals(latest_ns[:-1][is_gap], start_ns[1:][is_gap])
    launch_ns = work.launch_ns[order][1:][is_gap]
    is_launched = work.is_launched[order][1:][is_gap]
    is_host: np.ndarray = is_launched & (launch_ns > gaps.start_ns)
    return gaps, is_host


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank, and when it was late, of the `collectives` that it took part in."""

    rank: int
    collectives: int
    arrivals: tuple[LateArrival, ...]

    @property
    def late(self) -> int:
        """How often it was late."""
        return len(self.arrivals)

    @property
    def last(self) -> int:
        """How often it came last."""
        return sum(one.is_last for one in self.arrivals)

    @property
    def total_ns(self) -> int:
        """By how much it was late, all together."""
        return sum(one.late_ns for one in self.arrivals)

    @property
    def more_ns(self) -> Int64s:
        """How much more of each of PARTS it had, all together; nothing if it never was late."""
        found: Int64s = np.sum([one.more_ns for one in self.arrivals], axis=0, dtype=np.int64)
        return found

    @property
    def reason(self) -> str:
        """The part that it had most more of."""
        return PARTS[int(self.more_ns.argmax())]


def stragglers(reader: Reader, work: GpuWork, job: Job) -> list[Straggler]:
    """Each rank that took part in a collective; the one that cost most first."""
    arrivals: dict[int, list[LateArrival]] = {}
    for one in late_arrivals(job, read_timelines(reader, work, job)):
        arrivals.setdefault(one.rank, []).append(one)
    taken_part = Counter(rank for collective in job.collectives for rank in collective.ranks)
    found = [
        Straggler(rank, count, tuple(arrivals.get(rank, ()))) for rank, count in taken_part.items()
    ]
    found.sort(key=lambda one: (-one.total_ns, one.rank))
    return found

"""What a rank did between two moments, by parts of its time.

Computation ran on its GPU; else copies ran; else the program was in its data loader; else the GPU
waited for the host, which launched the next work only after the work before had ended; the rest is
other waiting. Communication is none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.gpu.intervals import Intervals, difference, merged
from layerscope.analyse.gpu.sweep import Int64s
from layerscope.analyse.gpu.work import COMMUNICATION, COMPUTE, COPY, GpuWork

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

PARTS = ("compute", "copy", "loader", "host", "other")
_LOADING = """
    SELECT coalesce(rank, 0) AS rank, s.start_ns, s.start_ns + s.dur_ns AS end_ns
    FROM spans s JOIN tracks USING (track) JOIN processes USING (process)
    WHERE s.layer = 'operators' AND s.kind = 'loader' ORDER BY s.start_ns"""


class RankTimeline(Struct, frozen=True):
    """What a rank did, as intervals that do not overlap, one for each of PARTS."""

    parts: tuple[Intervals, ...]

    def in_windows(self, from_ns: Int64s, until_ns: Int64s) -> list[Int64s]:
        """The time of each part in each of these windows."""
        return [part.in_windows(from_ns, until_ns) for part in self.parts]


def read_loading(reader: Reader) -> dict[int, Intervals]:
    """When each rank was in its data loader."""
    found = reader.query(_LOADING)
    ranks = found["rank"].to_numpy()
    starts_ns = found["start_ns"].to_numpy()
    ends_ns = found["end_ns"].to_numpy()
    loading = {}
    for rank in np.unique(ranks).tolist():
        its = ranks == rank
        loading[rank] = merged(starts_ns[its], ends_ns[its])
    return loading


def timeline(work: GpuWork, loads: Intervals | None) -> RankTimeline:
    """What a rank did that has this work and was in its data loader then."""
    computing = _of_kind(work, COMPUTE)
    copying = difference(_of_kind(work, COPY), computing)
    working = merged(
        np.concatenate((computing.start_ns, copying.start_ns)),
        np.concatenate((computing.end_ns, copying.end_ns)),
    )
    communicating = _of_kind(work, COMMUNICATION)
    idle, is_host = _idle(work)
    nothing = Intervals(work.start_ns[:0], work.end_ns[:0])
    loading = difference(loads or nothing, working)
    waits = [
        Intervals(idle.start_ns[chosen], idle.end_ns[chosen]) for chosen in (is_host, ~is_host)
    ]
    host, other = (difference(difference(one, loading), communicating) for one in waits)
    return RankTimeline((computing, copying, loading, host, other))


def _of_kind(work: GpuWork, kind: int) -> Intervals:
    its = work.chosen(work.kind == kind)
    return merged(its.start_ns, its.end_ns)


def _idle(work: GpuWork) -> tuple[Intervals, np.ndarray]:
    """When nothing ran on any stream, and whether the host had launched nothing then."""
    order = np.argsort(work.start_ns, kind="stable")
    in_order = work.chosen(order)
    latest_ns = np.maximum.accumulate(in_order.end_ns)
    later = in_order.chosen(slice(1, None))
    before_ns = latest_ns[:-1]
    is_gap = later.start_ns > before_ns
    behind = later.chosen(is_gap)
    gaps = Intervals(before_ns[is_gap], behind.start_ns)
    is_host: np.ndarray = behind.is_launched & (behind.launch_ns > gaps.start_ns)
    return gaps, is_host

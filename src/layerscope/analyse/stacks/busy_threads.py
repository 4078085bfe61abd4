"""Whether several threads of a program were busy: then each has a frame of its own in a flame
graph, without being asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.stacks.frames import FrameTable
from layerscope.analyse.stacks.openmp_workers import WORKERS, as_workers
from layerscope.analyse.stacks.sample_reader import read_stacks
from layerscope.analyse.stacks.tree import has_above

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# A busy thread has at least this part of all CPU time.
_LEAST_SHARE = 0.1
_CPU_TIMES = """
    SELECT track, sum(weight_ns)::BIGINT AS cpu_ns FROM samples WHERE kind = 'cpu' GROUP BY track"""


def several_are_busy(reader: Reader) -> bool:
    """Whether two or more threads had a tenth of the CPU time each. Time of the threads that OpenMP
    began is its own kind: it has one frame for all of them.
    """
    if not reader.has("samples"):
        return False
    rows = reader.query(_CPU_TIMES).to_pylist()
    whole_ns = sum(row["cpu_ns"] for row in rows)
    least_ns = _LEAST_SHARE * whole_ns
    busy = {}
    for row in rows:
        if row["cpu_ns"] >= max(least_ns, 1):
            busy[row["track"]] = row["cpu_ns"]
    if len(busy) < 2:
        return False
    for track, worked_ns in _in_workers(reader).items():
        if track in busy:
            busy[track] -= worked_ns
    still_busy = [track for track, cpu_ns in busy.items() if cpu_ns >= least_ns]
    return len(still_busy) >= 2


def _in_workers(reader: Reader) -> dict[int, int]:
    """By track the CPU time in what OpenMP began as a worker."""
    frames = FrameTable()
    stacks = read_stacks(reader, frames)
    if not len(stacks.up):
        return {}
    frame = as_workers(stacks.up, stacks.frame, frames)
    is_inside = has_above(stacks.up, frame == frames.number(WORKERS))
    found: dict[int, int] = {}
    for columns in reader.pieces("samples", ["track", "stack", "kind", "weight_ns"]):
        names = columns["kind.names"]
        if not len(names):
            continue
        place = stacks.place(columns["stack"])
        is_cpu = (names == "cpu")[columns["kind"]]
        is_counted = np.append(is_inside, False)[place] & is_cpu
        tracks, at = np.unique(columns["track"][is_counted], return_inverse=True)
        sums = np.bincount(at, columns["weight_ns"][is_counted], len(tracks))
        for track, worked_ns in zip(tracks.tolist(), sums.tolist(), strict=True):
            found[track] = found.get(track, 0) + int(worked_ns)
    return found

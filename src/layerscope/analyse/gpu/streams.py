"""The streams of GPUs, with what ran on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.gpu.work import GpuWork, parts_of

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_NAMES = "SELECT track, name FROM tracks WHERE kind = 'stream'"


def streams_of(reader: Reader, work: GpuWork) -> list[tuple[tuple[int, int, str], GpuWork]]:
    """Rank, device and name of each stream that did something, with its work; in this order."""
    names = reader.query(_NAMES)
    name_of = dict(zip(names["track"].to_pylist(), names["name"].to_pylist(), strict=True))
    found = []
    for part in parts_of(work.track):
        first = part.start
        track = int(work.track[first])
        where = int(work.rank[first]), int(work.device[first]), name_of.get(track, str(track))
        found.append((where, work.chosen(part)))
    return sorted(found, key=lambda one: one[0])

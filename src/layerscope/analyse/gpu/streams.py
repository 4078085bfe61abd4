"""The streams of GPUs, with what ran on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.gpu.work import GpuWork, parts_of

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_NAMES = "SELECT track, name FROM tracks"


def has_streams(reader: Reader) -> bool:
    """Whether anything of a GPU was recorded."""
    kinds = reader.arrays("tracks", ["kind"])
    return "stream" in kinds["kind.names"].tolist()


def streams_of(reader: Reader, work: GpuWork) -> list[tuple[tuple[int, int, str], GpuWork]]:
    """Rank, device and name of each stream that did something, with its work; in this order."""
    names = {row["track"]: row["name"] for row in reader.query(_NAMES).to_pylist()}
    found = []
    for part in parts_of(work.track):
        first = part.start
        rank = int(work.rank[first])
        device = int(work.device[first])
        name = names[int(work.track[first])]
        found.append(((rank, device, name), work.chosen(part)))
    return sorted(found, key=lambda one: one[0])

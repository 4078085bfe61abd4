"""The operators in which a program was when its recording ended."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.recording.reader import Reader


class OpenOperators(Struct):
    """The operators of one thread that had not ended when the recording did, outermost first."""

    thread: str
    names: list[str]


def open_operators(reader: Reader) -> list[OpenOperators]:
    """Those of each thread that had any open, in the order of its tracks."""
    left = []
    # They come last: in the newest file of each rank, or in the only one.
    newest = [files[-1] for files in reader.files_of_ranks("spans")]
    for spans in reader.pieces("spans", ["unfinished", "track", "depth", "name"], files=newest):
        rows = np.flatnonzero(spans["unfinished"])
        left += [
            (
                int(spans["track"][row]),
                int(spans["depth"][row]),
                str(spans["name.names"][spans["name"][row]]),
            )
            for row in rows.tolist()
        ]
    if not left:
        return []
    tracks = reader.arrays("tracks", ["track", "tid", "name"])
    threads = {
        int(track): f"{name or 'thread'} {tid if tid >= 0 else f'#{track}'}"
        for track, tid, name in zip(tracks["track"], tracks["tid"], tracks["name"], strict=True)
    }
    found: dict[int, list[tuple[int, str]]] = {}
    for track, depth, name in left:
        found.setdefault(track, []).append((depth, name))
    return [
        OpenOperators(threads[track], [name for _, name in sorted(chain)])
        for track, chain in sorted(found.items())
    ]

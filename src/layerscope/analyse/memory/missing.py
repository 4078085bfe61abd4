"""What is missing among the blocks of a recording, and what cannot be said of it for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.losses import REASONS, problems
from layerscope.analyse.memory.blocks import Int64s, Steps
from layerscope.analyse.step_times import Arrays, process_of_tracks

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# The losses among which releases may be: without its release a block is live for good.
_OF_RECORDS = ("ring_full", "disk_full", "max_size", "no_ring")

# The problems of recordings that lack blocks, or the ends of some.
_OF_BLOCKS = ("blocks_left_out", "blocks_of_windows", "releases_lost")


def missing_blocks(reader: Reader) -> str:
    """Why more memory was live than the blocks of a recording say, and the remedy; "": that is all
    there was.
    """
    for problem in problems(reader):
        if problem.code in _OF_BLOCKS:
            return f"{problem.what}; {problem.remedy}"
    return ""


def loss_within(reader: Reader, process: int, steps: Steps, places: Int64s) -> str:
    """Why records of a process were lost between the start of the first of these steps and the end
    of its last one, in words; "": none were.
    """
    gaps = reader.arrays("gaps", ["track", "process", "start_ns", "end_ns", "reason"])
    if not len(places):
        return ""
    if not len(gaps["start_ns"]):
        return ""
    names = gaps["reason.names"]
    reasons = names[gaps["reason"]]
    first_ns = steps.start_ns[places].min()
    is_within = gaps["end_ns"] >= first_ns
    is_within &= gaps["start_ns"] <= steps.last_end_ns
    is_within &= np.isin(reasons, _OF_RECORDS)
    # Where nobody knows whose records they were, they may be of this one.
    is_within &= np.isin(_processes(reader, gaps), (process, -1))
    for reason in reasons[is_within].tolist():
        return REASONS[reason]
    return ""


def _processes(reader: Reader, gaps: Arrays) -> Int64s:
    """The process of each gap, -1: not known."""
    tracks = reader.arrays("tracks", ["track", "process"])
    # One place more, for -1: no track is known.
    processes = process_of_tracks(tracks)
    of_tracks = np.append(processes, -1)
    track = gaps["track"]
    of_track = of_tracks[track]
    found: Int64s = np.where(track < 0, gaps["process"], of_track)
    return found

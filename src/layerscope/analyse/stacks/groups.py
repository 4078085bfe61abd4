"""What `--by` puts around the stacks of a flame graph: a frame for each thread, process, rank or
step, for running, spinning and waiting, or for what blocks of memory are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.memory.categories import CATEGORIES
from layerscope.analyse.stacks.frames import OTHER, FrameTable, StackFrame
from layerscope.analyse.stacks.tree import Bools, Ints
from layerscope.analyse.tables.threads import THREAD_NAMES

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("thread", "process", "rank", "step", "state", "category")
THREAD, PROCESS, RANK, STEP, STATE, CATEGORY = BY
# Threads where several of them were busy, else nothing.
AUTO = "auto"
# What a sample says that its thread did.
STATES = RUNNING, SPINNING, WAITING = ("running", "spinning", "waiting")
# The groups that are the same of every recording.
_FIXED = {STATE: STATES, CATEGORY: CATEGORIES}
_NO_STEP = "outside steps"
# Of tracks that nobody knows.
UNKNOWN = {THREAD: "no thread", PROCESS: "no process", RANK: "no rank"}


class Groups:
    """The groups of one recording. `are_plain`: without the ids that differ from one run to the
    next.
    """

    def __init__(self, reader: Reader, by: str, are_plain: bool = False) -> None:
        self._is_step = by == STEP
        self.is_state = by == STATE
        self.is_category = by == CATEGORY
        self._labels: list[str] = [*_FIXED.get(by, ())]
        if self._is_step or self._labels:
            return
        of_track = labels_of_tracks(reader, by, are_plain)
        unknown = UNKNOWN[by]
        labels = [*of_track.values(), unknown]
        self._labels = [*dict.fromkeys(labels)]
        number = {label: place for place, label in enumerate(self._labels)}
        # The last place is that of tracks nobody knows, -1 too.
        places = max(of_track, default=-1) + 2
        self._of_track = np.full(places, number[unknown], np.int64)
        for track, label in of_track.items():
            self._of_track[track] = number[label]

    def of(self, track: Ints, step: Ints) -> Ints:
        """The group of each sample or span: its place among `frames`."""
        if not self._is_step:
            return self._of_track[np.where((track >= 0) & (track < len(self._of_track)), track, -1)]
        first = len(self._labels)
        most = int(step.max(initial=-1))
        self._labels += [
            _NO_STEP if place == 0 else f"step {place - 1}" for place in range(first, most + 2)
        ]
        return step.astype(np.int64) + 1

    def of_states(self, stack: Ints, is_wait: Bools, spins: Bools) -> Ints:
        """The group of each sample by its state; `spins`: of each stack whether it spins."""
        is_spinning = np.append(spins, False)[stack]
        running = np.where(is_spinning, STATES.index(SPINNING), STATES.index(RUNNING))
        return np.where(is_wait, STATES.index(WAITING), running)

    def frames(self, frames: FrameTable) -> Ints:
        """The numbers of the frames around each group."""
        return frames.numbers(StackFrame(OTHER, label) for label in self._labels)


def labels_of_tracks(reader: Reader, by: str, are_plain: bool = False) -> dict[int, str]:
    """By track what its thread, process or rank is called."""
    columns = reader.arrays("tracks", ["track", "process", "name"])
    tracks, process_of = columns["track"].tolist(), columns["process"].tolist()
    if by == THREAD:
        if are_plain:
            return {
                track: name or UNKNOWN[by]
                for track, name in zip(tracks, columns["name"].tolist(), strict=True)
            }
        return dict(reader.connection().sql(THREAD_NAMES).fetchall())
    rows = reader.arrays("processes", ["process", "pid", "rank", "role", "argv"])
    called = {}
    for process, pid, rank, role, argv in zip(*(rows[name].tolist() for name in rows), strict=True):
        # Where the interpreter lies says little, and its path leaves no room for the rest.
        program, blank, rest = argv.partition(" ")
        command = f"{'' if are_plain else pid} {program.rpartition('/')[2]}{blank}{rest}".strip()
        called[process] = (
            (f"rank {rank}" if rank >= 0 else role or UNKNOWN[RANK])
            if by == RANK
            else command or UNKNOWN[by]
        )
    return {
        track: called.get(process, UNKNOWN[by])
        for track, process in zip(tracks, process_of, strict=True)
    }

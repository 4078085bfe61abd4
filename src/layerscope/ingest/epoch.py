"""The spans of a recording that are looked at together, and what is complete of them. Used by
`epochs`.
"""

from __future__ import annotations

import numpy as np

from layerscope.ingest.parts import by_process
from layerscope.ingest.primitives import unsettled
from layerscope.ingest.process import IngestedProcess
from layerscope.ingest.spans import Columns, keep, rows_of
from layerscope.ingest.stacks import Until
from layerscope.ingest.stepping import Stretch
from layerscope.recording.thinning import Units, units_of_slices, units_of_steps


class Epoch:
    """The spans that are looked at together. `columns` get a step and a phase; `done`: the rows
    that are complete; `inside`: the row of the parent of each, -1 for none.

    `asked_ns`, `asked_track`: when and where each was asked for. `groups`: by process, the rows of
    its spans. `phases_told`: as of `StringTable`. `units` and `until`: as of `Parts.add` and
    `StackIngest.fuse`.
    """

    def __init__(
        self,
        columns: Columns,
        processes: dict[int, IngestedProcess],
        process_of: np.ndarray,
        phases_told: np.ndarray,
    ) -> None:
        self.columns = columns
        self.processes = processes
        self.process_of = process_of
        self.groups = dict(by_process(process_of.take(columns["track"])))
        self.main_tracks = {process.main_track for process in processes.values()}
        with_shares = (one.number for one in processes.values() if one.source.has_shares)
        self.with_shares = frozenset(with_shares)
        self.units: dict[int, Units] = {}
        self.until: Until = {}
        count = len(columns["span"])
        self.done = np.zeros(count, np.bool_)
        columns["step"] = np.full(count, -1, np.int32)
        columns["phase"] = np.full(count, -1, np.int8)
        self.phases_told = phases_told
        self.inside = rows_of(columns["span"], columns["parent"])
        self.asked_ns, self.asked_track = self._asked()

    def _asked(self) -> tuple[np.ndarray, np.ndarray]:
        """When and on which track each span was asked for: its start and its own, but for an
        operator that was submitted, and all in it, the time and the track of the submission.
        """
        start_ns = self.columns["start_ns"]
        asked_ns, track = start_ns, self.columns["track"]
        for process in self.processes.values():
            asked_ns, track = process.submissions.asked(self.columns["span"], asked_ns, track)
            is_mine = self.process_of.take(self.columns["track"]) == process.number
            work = process.device_work
            asked_ns, track = work.asked(self.columns, is_mine, asked_ns, track)
        children = np.flatnonzero(self.inside >= 0)
        is_moved = asked_ns != start_ns
        changed = bool(is_moved.any())
        while changed:
            around = self.inside[children]
            follows = is_moved[around] & ~is_moved[children]
            own, around = children[follows], around[follows]
            asked_ns[own] = asked_ns[around]
            track[own] = track[around]
            is_moved[own] = True  # it may have been asked for when it began
            changed = bool(len(own))
        return asked_ns, self._track_of_requests(children, track)

    def _track_of_requests(self, children: np.ndarray, track: np.ndarray) -> np.ndarray:
        """The same tracks, with those of requests for what runs in the calls that answer them."""
        keys = [process.request_tracks() for process in self.processes.values()]
        requests = np.concatenate(keys)
        if not len(requests):
            return track
        track = track.copy()
        is_answering = np.isin(track, requests)
        changed = True
        while changed:
            around = self.inside[children]
            follows = is_answering[around] & ~is_answering[children]
            track[children[follows]] = track[around[follows]]
            is_answering[children[follows]] = True
            changed = bool(follows.any())
        return track

    def keep(self, rows: np.ndarray) -> None:
        """Leave these rows only."""
        place = np.full(len(self.inside) + 1, -1, np.int32)  # the last entry is for -1
        place[rows] = np.arange(len(rows), dtype=np.int32)
        keep(self.columns, rows)
        self.inside = place.take(self.inside.take(rows))

    def take(self, number: int, stretch: Stretch, last: bool) -> None:
        """What `stretch` says of a process: its spans before the cut are complete."""
        columns, process, rows = self.columns, self.processes[number], self.groups[number]
        mine = rows[columns["start_ns"][rows] < stretch.cut_ns]
        if not len(mine):
            return
        is_cut_anywhere = not (last or len(stretch.found.start_ns))  # not between two steps
        if is_cut_anywhere and number in self.with_shares:
            mine = self._without_unsettled(mine, process.cut_ns)
        of = slice(None) if len(mine) == len(self.done) else mine
        start_ns = columns["start_ns"][of]
        asked_ns = self.asked_ns[of]
        step, phase = stretch.assign(asked_ns, self.asked_track[of])
        columns["phase"][of] = self._as_told(columns["args"][of], phase)
        columns["step"][of] = process.numbers(step)
        self.units[number] = _units(process, stretch, start_ns)
        self.until[number] = process, stretch.cut_ns, stretch.assign
        self.done[of] = True

    def _as_told(self, args: np.ndarray, phase: np.ndarray) -> np.ndarray:
        """The phases of spans with these arguments: of an operator that tells what it belongs to
        the one of that, in whatever phase of the step it was executed.
        """
        if not (self.phases_told >= 0).any():
            return phase
        told = self.phases_told.take(args)
        return np.where((phase >= 0) & (told >= 0), told, phase)

    def _without_unsettled(self, mine: np.ndarray, since_ns: int) -> np.ndarray:
        """The rows without executions that may turn out to be shares, unless that is all of
        them.
        """
        left = unsettled(self.columns, mine, self.main_tracks, since_ns)
        if len(left) == len(mine):
            return mine
        return np.setdiff1d(mine, left, assume_unique=True)


def _units(process: IngestedProcess, stretch: Stretch, start_ns: np.ndarray) -> Units:
    """What is thinned as a whole of the spans of a process that a stretch has completed; they start
    at these times.
    """
    from_ns, process.cut_ns = process.cut_ns, stretch.cut_ns
    found = stretch.found
    mine = np.flatnonzero((found.start_ns >= from_ns) & (found.start_ns < stretch.cut_ns))
    from_ns = from_ns if from_ns >= 0 else int(start_ns.min())
    last_ns = int(start_ns.max())
    if not len(mine):
        return units_of_slices(
            start_ns[start_ns >= from_ns], from_ns, min(stretch.cut_ns, last_ns + 1)
        )
    number = process.numbers(stretch.number + mine)
    return units_of_steps(
        number, found.start_ns[mine], found.dur_ns[mine], from_ns, stretch.cut_ns, last_ns
    )

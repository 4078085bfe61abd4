"""Which spans of an epoch are open at the time of a sample, as frames of its stack. Used by
`stacks`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layerscope.ingest.frames import FrameNames
from layerscope.ingest.primitives import PRIMITIVE_SHARE
from layerscope.ingest.spans import (
    BACKWARD,
    EXECUTE,
    FUNCTION,
    LAYERS,
    SHARE,
    Columns,
    rows_of,
)
from layerscope.ingest.stack_tree import NONE, innermost
from layerscope.model.distinct import distinct


class OpenSpans:
    """Which spans of an epoch are open when, and as frames of stacks."""

    def __init__(
        self,
        columns: Columns,
        inside: np.ndarray,
        process_of: np.ndarray,
        links: Columns,
        frames: FrameNames,
    ) -> None:
        self.span = columns["span"]
        self._start_ns = columns["start_ns"]
        self._end_ns = self._start_ns + columns["dur_ns"]
        self._track = columns["track"]
        self._kind = columns["kind_code"]
        self._inside = inside  # on its own track
        self.parent = self._inside.copy()  # of a share the primitive that it works for
        is_share = links["kind_code"] == PRIMITIVE_SHARE
        if is_share.any():
            ends = np.append(links["to_span"][is_share], links["from_span"][is_share])
            share, of = np.split(rows_of(self.span, ends), 2)
            self.parent[share] = of
        self._process_of = process_of
        first = np.flatnonzero(np.diff(self._track, prepend=-1))  # they are in order
        self._tracks = self._track[first]
        self._bounds = np.append(first, len(self._track))
        self._name = columns["name_code"]
        self._module = columns["module"]
        self._frames = frames

    def frames_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The frames of spans, as `FrameNames` numbers spans: one around each, and its own; NONE
        for none. A share is of the primitive that it works for, and has none of its own.

        A backward function is of the module that its operator ran in, which is not open any more,
        and an operator that was submitted of one that is open on another thread: that is the frame
        around it.
        """
        kind, module, around = self._kind[rows], self._module[rows], self._inside[rows]
        own = _numbered(LAYERS[kind], self._name[rows], self._frames.span)
        own[kind == SHARE] = NONE
        is_open = (around >= 0) & (self._module[around] == module)
        is_elsewhere = (kind == BACKWARD) | ((kind == FUNCTION) & (around < 0))
        closed = np.flatnonzero(is_elsewhere & (module >= 0) & ~is_open)
        of_module = np.full(len(rows), NONE, np.int64)
        of_module[closed] = _numbered(
            np.zeros(len(closed), np.int64), module[closed], lambda _, key: self._frames.module(key)
        )
        return of_module, own

    def _rows(self, track: int) -> slice:
        """The rows of a track; an empty slice where it has none."""
        position = int(np.searchsorted(self._tracks, track))
        is_known = position < len(self._tracks) and self._tracks[position] == track
        if not is_known:
            return slice(0, 0)
        first = int(self._bounds[position])
        stop = int(self._bounds[position + 1])
        return slice(first, stop)

    def at(self, track: np.ndarray, at_ns: np.ndarray) -> np.ndarray:
        """The innermost open span of each sample, NONE for none."""
        found = np.full(len(track), NONE, np.int64)
        for key in distinct(track).tolist():
            mine = np.flatnonzero(track == key)
            found[mine] = self._at(key, at_ns[mine])
        return found

    def worked_for(self, found: np.ndarray, at_ns: np.ndarray, process: int) -> np.ndarray:
        """The same if these samples are of workers: where no span is open what their team works
        for. `found`: as `at` gives it.
        """
        alone = np.flatnonzero(found == NONE)
        if not len(alone):
            return found
        found = found.copy()
        found[alone] = self._worked_for(process, at_ns[alone])
        return found

    def _at(self, track: int, at_ns: np.ndarray) -> np.ndarray:
        """The row of the innermost open span of a track at these times, NONE for none."""
        rows = self._rows(track)
        first = rows.start
        parent = self._inside[rows]
        parent = np.where(parent >= 0, parent - first, NONE)
        start_ns = self._start_ns[rows]
        end_ns = self._end_ns[rows]
        found = innermost(start_ns, end_ns, parent, at_ns)
        return np.where(found >= 0, found + first, NONE)

    def _worked_for(self, process: int, at_ns: np.ndarray) -> np.ndarray:
        """The innermost operator or primitive that is open on the one thread of the process that
        has one open.
        """
        found = np.full(len(at_ns), NONE, np.int64)
        count = np.zeros(len(at_ns), np.int64)
        is_primitive = (self._kind >= EXECUTE) & (self._kind <= SHARE)
        works = (self._kind <= BACKWARD) | is_primitive
        for track in self._tracks.tolist():
            if self._process_of[track] != process:
                continue
            if not works[self._rows(track)].any():
                continue
            row = self._at(track, at_ns)
            is_own = works[row] & (self._kind[row] != SHARE)
            busy = (row >= 0) & is_own
            found[busy] = row[busy]
            count[busy] += 1
        found[count != 1] = NONE
        return found


def _numbered(layer: np.ndarray, name: np.ndarray, number: Callable[[int, int], int]) -> np.ndarray:
    """The number of each pair, asked once for each that there is."""
    pair_of_row = layer.astype(np.int64) << 32 | name
    pairs, inverse = np.unique(pair_of_row, return_inverse=True)
    numbers = []
    for pair in pairs.tolist():
        layer_of_pair, name_of_pair = pair >> 32, pair & 0xFFFFFFFF
        numbers.append(number(layer_of_pair, name_of_pair))
    return np.array(numbers, np.int64)[inverse]

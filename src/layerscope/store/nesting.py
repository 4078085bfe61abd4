"""Parents and self time of the spans of one track, batch by batch, while they still come in.

Definitions. A span's depth is the number of spans that were open on its track when it started. Its parent
is the span one level up that was open then: the latest one there that started before it, if it had not
ended. A parent that has not ended yet gets its key before its row exists. Where the parent was lost, the
span has none: no guess. Self time is the duration without the time inside the children of the same layer;
time of a lost child stays with its parent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


class Keys:
    """Hands out the keys of spans: one number after the other for the whole recording."""

    def __init__(self) -> None:
        self.next = 0

    def take(self, count: int) -> np.ndarray:
        """`count` fresh keys, int64."""
        keys = np.arange(self.next, self.next + count, dtype=np.int64)
        self.next += count
        return keys


@dataclass(slots=True)
class _Awaited:
    """A parent that has children already but has not ended."""

    key: int
    first_child_ns: int
    children_ns: int


@dataclass(slots=True)
class Nested:
    """Columns for the spans of one batch, in the order they were given."""

    key: np.ndarray
    parent: np.ndarray
    self_ns: np.ndarray


@dataclass(slots=True)
class _Level:
    """The spans of one depth in a batch, by start."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    key: np.ndarray


@dataclass(slots=True)
class TrackNesting:
    """The state of one track between batches. `never_came`: keys of parents that were lost after all."""

    keys: Keys
    never_came: list[int] = field(default_factory=list)
    _awaited: dict[int, _Awaited] = field(default_factory=dict)
    _newest: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # level -> start, end, key

    def add(self, start_ns: np.ndarray, end_ns: np.ndarray, depth: np.ndarray) -> Nested:
        """Keys, parents (-1: none) and self times of a batch of ended spans of this track.

        A batch holds every span that ended before some moment and was not in an earlier batch.
        """
        count = len(start_ns)
        fresh = self.keys.take(count)
        out = Nested(fresh, np.full(count, -1, np.int64), end_ns - start_ns)
        above: list[_Level] = []
        for level in range(int(depth.max()) + 1 if count else 0):
            rows = np.flatnonzero(depth == level)
            rows = rows[np.argsort(start_ns[rows], kind="stable")]
            here = _Level(rows, start_ns[rows], end_ns[rows], out.key[rows])
            self._settle(level, here, out)
            if level and len(rows):
                self._adopt(level, here, above, out)
            above.append(here)
        for level, here in enumerate(above):
            if len(here.rows):
                self._newest[level] = (int(here.start[-1]), int(here.end[-1]), int(here.key[-1]))
        np.maximum(out.self_ns, 0, out=out.self_ns)
        return out

    def finish(self) -> None:
        """No more spans: what is still awaited was lost."""
        self.never_came.extend(awaited.key for awaited in self._awaited.values())
        self._awaited.clear()

    def _settle(self, level: int, here: _Level, out: Nested) -> None:
        """Give the awaited span of this level its key and its children's time, if it is in the batch."""
        awaited = self._awaited.get(level)
        if awaited is None or not len(here.rows):
            return
        at = int(np.searchsorted(here.start, awaited.first_child_ns, side="right")) - 1
        if at >= 0 and here.end[at] >= awaited.first_child_ns:
            here.key[at] = awaited.key
            out.key[here.rows[at]] = awaited.key
            out.self_ns[here.rows[at]] -= awaited.children_ns
            del self._awaited[level]
        elif here.start[-1] > awaited.first_child_ns:
            # A later span has this depth: the awaited one is over and was lost.
            self.never_came.append(awaited.key)
            del self._awaited[level]

    def _adopt(self, level: int, here: _Level, above: list[_Level], out: Nested) -> None:
        parents = above[level - 1]
        at = np.searchsorted(parents.start, here.start, side="right") - 1
        known = at >= 0
        known[known] = parents.end[at[known]] >= here.start[known]
        rows, chosen = here.rows[known], at[known]
        out.parent[rows] = parents.key[chosen]
        inside = np.minimum(here.end[known], parents.end[chosen]) - here.start[known]
        np.subtract.at(out.self_ns, parents.rows[chosen], inside)
        if known.all():
            return
        if (at < 0).any():  # a parent that ended before its child may have gone with an earlier batch
            start, end, key = self._newest.get(level - 1, (0, -1, -1))
            gone = (at < 0) & (here.start >= start) & (here.start <= end)
            out.parent[here.rows[gone]] = key
            known |= gone
        # Behind the last ended span of the level above, the parent is one that has not ended yet.
        waits = ~known & (at == len(parents.rows) - 1)
        if waits.any():
            self._wait(level - 1, here, waits, out)
        if level > 1:
            self._charge_ancestors(here, ~known, above[: level - 1], out)

    def _wait(self, level: int, here: _Level, waits: np.ndarray, out: Nested) -> None:
        awaited = self._awaited.get(level)
        first = int(here.start[waits].min())
        if awaited is None:
            awaited = self._awaited[level] = _Awaited(int(self.keys.take(1)[0]), first, 0)
        awaited.first_child_ns = min(awaited.first_child_ns, first)
        awaited.children_ns += int((here.end[waits] - here.start[waits]).sum())
        out.parent[here.rows[waits]] = awaited.key

    def _charge_ancestors(self, here: _Level, orphans: np.ndarray, above: list[_Level], out: Nested) -> None:
        """Spans whose parent is not in the batch: their time counts in the nearest ancestor that is."""
        for ancestors in reversed(above):
            rows = np.flatnonzero(orphans)
            if not len(rows):
                return
            at = np.searchsorted(ancestors.start, here.start[rows], side="right") - 1
            found = at >= 0
            found[found] = ancestors.end[at[found]] >= here.start[rows[found]]
            rows, at = rows[found], at[found]
            inside = np.minimum(here.end[rows], ancestors.end[at]) - here.start[rows]
            np.subtract.at(out.self_ns, ancestors.rows[at], inside)
            orphans[rows] = False

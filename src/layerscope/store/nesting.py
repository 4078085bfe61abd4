"""Parents and self time of the spans of one track, batch by batch, while they still come in.

Definitions. A span's depth is the number of spans that were open on its track when it started, of any layer. Its
parent is the span one level up that was open then: the latest one there that started before it, if it had not
ended. A parent that has not ended yet gets its key before its row exists. Where the parent was lost, the span has
none: no guess. Self time is the duration without the spans of the same layer inside, whatever lies between: an
operator in a module in an operator counts in both. Time of a lost child stays with the nearest span around it.
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


NONE = -1  # no such ancestor; below it, the span that is awaited on some level: see `_awaited_at`


def _awaited_at(level: int) -> int:
    """The code of the span that is open at `level` and has not come yet. Its own inverse."""
    return -2 - level


@dataclass(slots=True)
class _Awaited:
    """A parent that has children already but has not ended. `inside_ns`: by layer, what lies in it and in no other
    span of that layer in it.
    """

    key: int
    first_child_ns: int
    inside_ns: np.ndarray


@dataclass(slots=True)
class Nested:
    """Columns for the spans of one batch, in the order they were given."""

    key: np.ndarray
    parent: np.ndarray
    self_ns: np.ndarray


@dataclass(slots=True)
class _Level:
    """The spans of one depth in a batch, by start. `around` and `nearest`: by row and layer, the nearest span around
    it, and at least it: a row of the batch, NONE, or an awaited one.
    """

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    key: np.ndarray
    around: np.ndarray
    nearest: np.ndarray


@dataclass(slots=True)
class _Batch:
    """What is known of a batch while its levels are taken from the outermost inwards."""

    end: np.ndarray
    layer: np.ndarray
    out: Nested
    levels: list[_Level] = field(default_factory=list)


@dataclass(slots=True)
class TrackNesting:
    """The state of one track between batches. `never_came`: keys of parents that were lost after all."""

    keys: Keys
    layers: int = 1
    never_came: list[int] = field(default_factory=list)
    _awaited: dict[int, _Awaited] = field(default_factory=dict)
    _newest: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # level -> start, end, key

    def add(
        self, start_ns: np.ndarray, end_ns: np.ndarray, depth: np.ndarray, layer: np.ndarray | None = None
    ) -> Nested:
        """Keys, parents (-1: none) and self times of a batch of ended spans of this track; `layer` from 0.

        A batch holds every span that ended before some moment and was not in an earlier batch.
        """
        count = len(start_ns)
        out = Nested(self.keys.take(count), np.full(count, -1, np.int64), end_ns - start_ns)
        batch = _Batch(end_ns, np.zeros(count, np.int8) if layer is None else layer, out)
        for level in range(int(depth.max()) + 1 if count else 0):
            rows = np.flatnonzero(depth == level)
            rows = rows[np.argsort(start_ns[rows], kind="stable")]
            around = np.full((len(rows), self.layers), NONE, np.int32)
            here = _Level(rows, start_ns[rows], end_ns[rows], out.key[rows], around, around)
            came, awaited = self._settle(level, here, out)
            if level and len(rows):
                self._adopt(level, here, batch)
            here.nearest = around.copy()
            here.nearest[np.arange(len(rows)), batch.layer[rows]] = rows
            if awaited is not None:
                for of, inside_ns in enumerate(awaited.inside_ns.tolist()):
                    self._charge_one(int(here.nearest[came, of]), of, inside_ns, out)
            batch.levels.append(here)
        for level, here in enumerate(batch.levels):
            if len(here.rows):
                self._newest[level] = (int(here.start[-1]), int(here.end[-1]), int(here.key[-1]))
        np.maximum(out.self_ns, 0, out=out.self_ns)
        return out

    def finish(self) -> None:
        """No more spans: what is still awaited was lost."""
        self.never_came.extend(awaited.key for awaited in self._awaited.values())
        self._awaited.clear()

    def _settle(self, level: int, here: _Level, out: Nested) -> tuple[int, _Awaited | None]:
        """Give the awaited span of this level its key, if it is in the batch: its place in `here`, and what waited."""
        awaited = self._awaited.get(level)
        if awaited is None or not len(here.rows):
            return 0, None
        at = int(np.searchsorted(here.start, awaited.first_child_ns, side="right")) - 1
        if at >= 0 and here.end[at] >= awaited.first_child_ns:
            here.key[at] = awaited.key
            out.key[here.rows[at]] = awaited.key
            return at, self._awaited.pop(level)
        if here.start[-1] > awaited.first_child_ns:
            # A later span has this depth: the awaited one is over and was lost.
            self.never_came.append(awaited.key)
            del self._awaited[level]
        return 0, None

    def _adopt(self, level: int, here: _Level, batch: _Batch) -> None:
        """Parents of the spans of a level, what lies around them, and their time in it."""
        parents, out = batch.levels[level - 1], batch.out
        at = np.searchsorted(parents.start, here.start, side="right") - 1
        known = at >= 0
        known[known] = parents.end[at[known]] >= here.start[known]
        out.parent[here.rows[known]] = parents.key[at[known]]
        here.around[known] = parents.nearest[at[known]]
        if not known.all():
            if (at < 0).any():  # a parent that ended before its child may have gone with an earlier batch
                start, end, key = self._newest.get(level - 1, (0, -1, -1))
                gone = (at < 0) & (here.start >= start) & (here.start <= end)
                out.parent[here.rows[gone]] = key
                known |= gone
            if level > 1:
                _find_ancestors(here, ~known, batch.levels[: level - 1])
            # Behind the last ended span of the level above, the parent is one that has not ended yet.
            waits = ~known & (at == len(parents.rows) - 1)
            if waits.any():
                self._wait(level - 1, here, waits, out)
        self._charge(here, batch)

    def _wait(self, level: int, here: _Level, waits: np.ndarray, out: Nested) -> None:
        awaited = self._awaited.get(level)
        first = int(here.start[waits].min())
        if awaited is None:
            nothing = np.zeros(self.layers, np.int64)
            awaited = self._awaited[level] = _Awaited(int(self.keys.take(1)[0]), first, nothing)
        awaited.first_child_ns = min(awaited.first_child_ns, first)
        out.parent[here.rows[waits]] = awaited.key
        here.around[waits] = np.where(here.around[waits] == NONE, _awaited_at(level), here.around[waits])

    def _charge(self, here: _Level, batch: _Batch) -> None:
        """Take the time of each span from the self time of the nearest span of its layer around it."""
        layer = batch.layer[here.rows]
        target = here.around[np.arange(len(here.rows)), layer]
        inside = np.flatnonzero(target >= 0)
        of = target[inside]
        # Spans may cross: what lies in a child of it may begin after its own end.
        common_ns = np.minimum(here.end[inside], batch.end[of]) - here.start[inside]
        np.subtract.at(batch.out.self_ns, of, np.maximum(common_ns, 0))
        waits = np.flatnonzero(target < NONE)
        for row in np.unique(target[waits]).tolist() if len(waits) else ():
            mine = waits[target[waits] == row]
            dur_ns = here.end[mine] - here.start[mine]
            np.add.at(self._awaited[_awaited_at(row)].inside_ns, layer[mine], dur_ns)

    def _charge_one(self, target: int, layer: int, dur_ns: int, out: Nested) -> None:
        if target >= 0:
            out.self_ns[target] -= dur_ns
        elif target < NONE and dur_ns:
            self._awaited[_awaited_at(target)].inside_ns[layer] += dur_ns


def _find_ancestors(here: _Level, orphans: np.ndarray, above: list[_Level]) -> None:
    """What lies around spans whose parent is not in the batch: the nearest ancestor that is, and what is around it."""
    for ancestors in reversed(above):
        rows = np.flatnonzero(orphans)
        if not len(rows):
            return
        at = np.searchsorted(ancestors.start, here.start[rows], side="right") - 1
        found = at >= 0
        found[found] = ancestors.end[at[found]] >= here.start[rows[found]]
        here.around[rows[found]] = ancestors.nearest[at[found]]
        orphans[rows[found]] = False

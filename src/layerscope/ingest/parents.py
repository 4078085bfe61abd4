"""Parents and self time of the spans of one track, batch by batch, while they still come in.

Definitions. A span's depth is the number of spans that were open on its track when it started, of
any layer. Its parent is the span one level up that was open then: the latest one there that started
before it, if it had not ended. A parent that has not ended yet gets its key before its row exists.
Where the parent was lost, the span has none: no guess. Self time is the duration without the spans
of the same layer inside, whatever lies between: an operator in a module in an operator counts in
both. What a child outlives its parent by is taken from the next span around them. Time of a lost
child stays with the nearest span around it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.ingest.depth_levels import (
    NONE,
    DepthLevel,
    adopt,
    by_depth,
    charge,
    charge_to,
    enclose,
)
from layerscope.model.compiled import compiled
from layerscope.model.distinct import distinct


class Keys:
    """Hands out the keys of spans: one number after the other for the whole recording."""

    def __init__(self) -> None:
        self.next = 0

    def take(self, count: int) -> np.ndarray:
        """`count` fresh keys, int64."""
        end = self.next + count
        keys = np.arange(self.next, end, dtype=np.int64)
        self.next = end
        return keys


# Of a depth before `inside`, as depth_state of native/tables/ends.c has them.
_STATE_FIELDS = 5


def _awaited_at(level: int) -> int:
    """The code of the span that is open at `level` and has not come yet. Its own inverse."""
    return -2 - level


class _Awaited(Struct):
    """A parent that has children already but has not ended. `inside_ns`: by layer, what lies in it
    and in no other span of that layer in it.
    """

    key: int
    first_child_ns: int
    inside_ns: np.ndarray


class Nested(Struct):
    """Columns for the spans of one batch, in the order they were given."""

    key: np.ndarray
    parent: np.ndarray
    self_ns: np.ndarray


class _Batch(Struct):
    """What is known of a batch while its levels are taken from the outermost inwards."""

    end: np.ndarray
    layer: np.ndarray
    out: Nested
    levels: list[DepthLevel] = field(default_factory=list)
    _around: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    _known: int = 0  # levels that are in it

    def around(self, rows: np.ndarray, layer: np.ndarray) -> np.ndarray:
        """What lies around these rows of levels so far, of these layers. Only spans that cross ask
        for it.
        """
        if not len(self._around):
            self._around = np.full((len(self.end), self.levels[0].around.shape[1]), NONE, np.int32)
        for level in self.levels[self._known :]:
            self._around[level.rows] = level.around
        self._known = len(self.levels)
        found: np.ndarray = self._around[rows, layer]
        return found


class TrackNesting(Struct):
    """The state of one track between batches. `never_came`: keys of parents that were lost after
    all.
    """

    keys: Keys
    layers: int = 1
    never_came: list[int] = field(default_factory=list)
    _awaited: dict[int, _Awaited] = field(default_factory=dict)
    _newest: dict[int, tuple[int, int, int]] = field(
        default_factory=dict
    )  # level -> start, end, key

    def add(
        self,
        start_ns: np.ndarray,
        end_ns: np.ndarray,
        depth: np.ndarray,
        layer: np.ndarray | None = None,
    ) -> Nested:
        """Keys, parents (-1: none) and self times of a batch of ended spans of this track; `layer`
        from 0.

        A batch holds every span that ended before some moment and was not in an earlier batch.
        """
        start_ns, end_ns = np.ascontiguousarray(start_ns), np.ascontiguousarray(end_ns)
        count = len(start_ns)
        layer = np.zeros(count, np.int8) if layer is None else np.ascontiguousarray(layer, np.int8)
        by_ends = self._by_ends(start_ns, end_ns, depth, layer)
        if by_ends is not None:
            return by_ends
        out = Nested(self.keys.take(count), np.full(count, -1, np.int64), end_ns - start_ns)
        batch = _Batch(end_ns, layer, out)
        for level, here in enumerate(by_depth(start_ns, end_ns, depth, out.key, self.layers)):
            came, awaited = self._settle(level, here, out)
            if level and len(here.rows):
                self._adopt(level, here, batch)
            enclose(here, batch.layer)
            if awaited is not None:
                for of, inside_ns in enumerate(awaited.inside_ns.tolist()):
                    self._charge_one(int(here.nearest[came, of]), of, inside_ns, out)
            batch.levels.append(here)
        for level, here in enumerate(batch.levels):
            if len(here.rows):
                self._newest[level] = (int(here.start[-1]), int(here.end[-1]), int(here.key[-1]))
        np.maximum(out.self_ns, 0, out=out.self_ns)
        return out

    def _by_ends(
        self, start_ns: np.ndarray, end_ns: np.ndarray, depth: np.ndarray, layer: np.ndarray
    ) -> Nested | None:
        """What `add` gives for spans in the order of their ends of which none crosses another, in
        one pass (native/tables/ends.c). None: they are not like that.
        """
        library, count = compiled(), len(start_ns)
        if library is None or not count:
            return None
        states = self._states(int(depth.max()) + 1)
        levels = len(states)
        out = Nested(*np.empty((3, count), np.int64))
        spans = (start_ns, end_ns, np.ascontiguousarray(depth, np.int32), layer, count)
        keys = self.keys.next
        found = (out.key, out.parent, out.self_ns)
        fresh = library.call("nest", *spans, keys, states, levels, self.layers, *found)
        if fresh < 0:
            return None
        self.keys.next += count + fresh
        for level, (_, key, first_child_ns, newest, _, *_) in enumerate(states.tolist()):
            if newest >= 0:
                self._newest[level] = (
                    int(start_ns[newest]),
                    int(end_ns[newest]),
                    int(out.key[newest]),
                )
            if key >= 0:
                inside_ns = states[level, _STATE_FIELDS:].copy()
                self._awaited[level] = _Awaited(key, first_child_ns, inside_ns)
            else:
                self._awaited.pop(level, None)
        return out

    def _states(self, levels: int) -> np.ndarray:
        """What native/tables/ends.c wants to know of each depth."""
        states = np.full((levels, _STATE_FIELDS + self.layers), NONE, np.int64)
        states[:, _STATE_FIELDS:] = 0
        latest_ns = -1
        for level, row in enumerate(states):
            _, end_ns, _ = self._newest.get(level, (0, -1, -1))
            latest_ns = max(latest_ns, end_ns)
            row[0] = latest_ns
            awaited = self._awaited.get(level)
            if awaited is not None:
                row[1:3] = awaited.key, awaited.first_child_ns
                row[_STATE_FIELDS:] = awaited.inside_ns
        return states

    def finish(self) -> None:
        """No more spans: what is still awaited was lost."""
        lost = (awaited.key for awaited in self._awaited.values())
        self.never_came.extend(lost)
        self._awaited.clear()

    def _settle(self, level: int, here: DepthLevel, out: Nested) -> tuple[int, _Awaited | None]:
        """Give the awaited span of this level its key, if it is in the batch: its place in `here`,
        and what waited.
        """
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

    def _adopt(self, level: int, here: DepthLevel, batch: _Batch) -> None:
        """Parents of the spans of a level, what lies around them, and their time in it."""
        parents, out = batch.levels[level - 1], batch.out
        at, known = adopt(parents, here, out.parent)
        if not known.all():
            if (
                at < 0
            ).any():  # a parent that ended before its child may have gone with an earlier batch
                start, end, key = self._newest.get(level - 1, (0, -1, -1))
                gone = (at < 0) & (here.start >= start) & (here.start <= end)
                out.parent[here.rows[gone]] = key
                here.from_ns = np.where(gone, end, here.from_ns)
                if level > 1:
                    _find_ancestors(here, gone.copy(), batch.levels[: level - 1])
                    self._find_awaited(here, gone, level - 1)
                known |= gone
            if level > 1:
                _find_ancestors(here, ~known, batch.levels[: level - 1])
            # Behind the last ended span of the level above, the parent is one that has not ended
            # yet.
            waits = ~known & (at == len(parents.rows) - 1)
            if waits.any():
                self._wait(level - 1, here, waits, batch)
        self._charge(level, here, batch)

    def _wait(self, level: int, here: DepthLevel, waits: np.ndarray, batch: _Batch) -> None:
        """The parent of these spans, at `level`, has not ended yet: give it a key."""
        awaited = self._awaited.get(level)
        first_ns = int(here.start[waits].min())
        if awaited is None:
            key = int(self.keys.take(1)[0])
            nothing = np.zeros(self.layers, np.int64)
            awaited = _Awaited(key, first_ns, nothing)
            self._awaited[level] = awaited
        awaited.first_child_ns = min(awaited.first_child_ns, first_ns)
        batch.out.parent[here.rows[waits]] = awaited.key
        # Where a parent was lost, what encloses it takes its place; what has ended before the
        # span does not.
        around = here.around[waits]
        around_end = batch.end[np.maximum(around, 0)]
        has_ended = (around >= 0) & (around_end < here.end[waits, None])
        is_over = (around == NONE) | has_ended
        here.around[waits] = np.where(is_over, _awaited_at(level), around)

    def _find_awaited(self, here: DepthLevel, rows: np.ndarray, below: int) -> None:
        """The innermost awaited span above the level `below` lies around these spans, if nothing of
        the batch does.
        """
        awaited = self._innermost_awaited(here.start[rows], below)
        around = here.around[rows]
        here.around[rows] = np.where(around == NONE, awaited[:, None], around)

    def _innermost_awaited(self, start_ns: np.ndarray, below: int) -> np.ndarray:
        """The code of the innermost awaited span above the level `below` that spans with these
        starts may lie in: one that had its first child later began later. NONE: there is none.
        """
        found = np.full(len(start_ns), NONE, np.int32)
        for level in range(below):
            awaited = self._awaited.get(level)
            if awaited is not None:
                found[start_ns >= awaited.first_child_ns] = _awaited_at(level)
        return found

    def _charge(self, level: int, here: DepthLevel, batch: _Batch) -> None:
        """Take the time of each span from the self time of the nearest span of its layer around it.

        Spans may cross: what it outlives that one by is taken from the next one, or from one that
        has not ended yet.
        """
        mine, target = charge(here, batch.end, batch.layer, batch.out.self_ns)
        from_ns = here.from_ns[mine]
        while len(mine):
            layer, end_ns = batch.layer[here.rows[mine]], here.end[mine]
            waits = target < NONE
            if waits.any():
                self._charge_awaited(target[waits], layer[waits], end_ns[waits] - from_ns[waits])
            outlives = np.flatnonzero(~waits)
            mine, target, layer = mine[outlives], target[outlives], layer[outlives]
            from_ns = np.maximum(from_ns[outlives], batch.end[target])
            target = batch.around(target, layer)
            awaited = self._innermost_awaited(here.start[mine], level)
            target = np.where(target == NONE, awaited, target)
            left = charge_to(target, from_ns, here.end[mine], batch.end, batch.out.self_ns)
            mine, target, from_ns = mine[left], target[left], from_ns[left]

    def _charge_awaited(self, awaited: np.ndarray, layer: np.ndarray, dur_ns: np.ndarray) -> None:
        """Note the time of spans that lie in spans that have not ended yet."""
        inside_ns = np.maximum(dur_ns, 0)
        for code in distinct(awaited).tolist():
            mine = awaited == code
            parent = self._awaited[_awaited_at(code)]
            np.add.at(parent.inside_ns, layer[mine], inside_ns[mine])

    def _charge_one(self, target: int, layer: int, dur_ns: int, out: Nested) -> None:
        """Take the time of one span from `target`, a row or the code of an awaited span."""
        if target >= 0:
            out.self_ns[target] -= dur_ns
        elif target < NONE and dur_ns:
            level = _awaited_at(target)
            parent = self._awaited[level]
            parent.inside_ns[layer] += dur_ns


def _find_ancestors(here: DepthLevel, orphans: np.ndarray, above: list[DepthLevel]) -> None:
    """What lies around spans whose parent is not in the batch: the nearest ancestor that is, and
    what is around it.
    """
    for ancestors in reversed(above):
        rows = np.flatnonzero(orphans)
        if not len(rows):
            return
        at = np.searchsorted(ancestors.start, here.start[rows], side="right") - 1
        found = at >= 0
        found[found] = ancestors.end[at[found]] >= here.start[rows[found]]
        here.around[rows[found]] = ancestors.nearest[at[found]]
        orphans[rows[found]] = False

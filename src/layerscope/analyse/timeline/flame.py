"""The tree of operators or primitives of a selection, from columns that are mapped into memory:
what `analyse/stacks/spans.py` makes of a whole recording, and a page of spans that it holds
(web/src/flame/from_spans.ts).

Memory is bounded by the spans that are looked at in one go, by four bytes for each span of a track,
and by the size of the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from layerscope.analyse.timeline.columns import TimelineColumns
from layerscope.analyse.timeline.links import ASKED
from layerscope.analyse.timeline.selection import SpanFilter, chunks
from layerscope.model.errors import UsageError
from layerscope.model.layers import OPERATORS, PRIMITIVES

NONE, TRACK, STEP = "none", "track", "step"
BY = (NONE, TRACK, STEP)
# More are neither drawn nor worth the memory.
MOST_NODES, MOST_WEIGHTS = 300_000, 1_000_000
# Up to so many possible stacks of a level stand in a table, which costs less than sorting.
_MOST_TABLE = 1 << 22
_SHARE = "share"
_NAME, _KIND, _LAYER = range(3)
_TOO_MANY = (
    "what is selected has more than {:,} different stacks, too many for a flame graph. Select "
    "a shorter stretch of time, or fewer threads"
)


class SelectedTree(NamedTuple):
    """Nodes, a parent before its children: `parent` (-1: none) and `frame`, the number of a name
    within its layer in the order of the classes. Then weights: of `node`, for a `key` (the track,
    or 1 + the step), the time in ns and the number of spans.
    """

    parent: list[int]
    frame: list[int]
    node: list[int]
    key: list[int]
    own: list[int]
    spans: list[int]


class FlameTrees:
    """Makes trees of the spans in `columns`."""

    def __init__(self, columns: TimelineColumns) -> None:
        self._columns = columns
        self._weight = columns.column("weight")
        self._asked = [columns.column(name) for name in ASKED]
        about = columns.about
        names: dict[tuple[int, int], int] = {}
        frames = [
            names.setdefault((one[_NAME], one[_LAYER]), len(names)) for one in about["classes"]
        ]
        self.frame_of_class = np.array(frames, np.int64)
        self.names = [name for name, _ in names]
        layers = np.array([*about["layers"], ""])[columns.classes[:, _LAYER]]
        is_share = np.array([*about["kinds"], ""])[columns.classes[:, _KIND]] == _SHARE
        self.is_operator = layers == OPERATORS
        self.is_primitive = (layers == PRIMITIVES) & ~is_share

    def tree(
        self,
        kind: str,
        of: SpanFilter,
        stretch: tuple[int | None, int | None],
        name: int | None,
        by: str,
    ) -> SelectedTree:
        """Of the spans of a filter that start in a stretch; `name`: only below spans called so."""
        growing = _Growing(self, name)
        weights = _Weights()
        for track in of.all_tracks(self._columns):
            first, last = self._columns.rows_in(track, *stretch)
            if first < last:
                self._add(kind, of, range(first, last), growing, weights, (by, track))
        return SelectedTree(growing.parent, growing.frame, *weights.summed())

    def _add(
        self,
        kind: str,
        of: SpanFilter,
        rows: range,
        growing: _Growing,
        weights: _Weights,
        grouped: tuple[str, int],
    ) -> None:
        """Add what ran on one track."""
        node = np.full(len(rows), -1, np.int32)
        for part in chunks(rows.start, rows.stop):
            chosen = part.start + np.flatnonzero(self._is_wanted(of, part))
            node[chosen - rows.start] = growing.nodes(self._columns, chosen, part)
        moved = self._moved(rows, node) if kind == OPERATORS else None
        for part in chunks(rows.start, rows.stop):
            places = slice(part.start - rows.start, part.stop - rows.start)
            time_ns, is_counted = self._times(part, node[places], moved)
            counted = np.flatnonzero(is_counted)
            key = self._keys(part.start + counted, *grouped)
            spans = self._weight[part.start + counted]
            weights.add(node[places][counted], key, time_ns[counted], spans)

    def _is_wanted(self, of: SpanFilter, part: slice) -> np.ndarray:
        cls = self._columns.cls[part]
        kept = of.keeps(self._columns, part)
        kept &= (self.is_operator | self.is_primitive)[cls]
        return kept

    def _keys(
        self,
        rows: np.ndarray,
        by: str,
        track: int,
    ) -> np.ndarray:
        if by == STEP:
            steps = self._columns.step[rows]
            return np.asarray(steps, np.int64)
        key = track if by == TRACK else 0
        return np.full(len(rows), key)

    def _weighted(
        self,
        rows: np.ndarray | slice,
    ) -> np.ndarray:
        own = self._columns.self_ns[rows]
        weight = self._weight[rows]
        own_ns = np.asarray(own, np.int64)
        return np.asarray(own_ns * weight)

    def _moved(
        self,
        rows: range,
        node: np.ndarray,
    ) -> _Moved:
        """Time of primitives that the operators on their thread have no more. An operator whose
        self time is shorter than that keeps it.
        """
        own, asking = self._pairs(rows, node)
        operators, place = np.unique(asking, return_inverse=True)
        taken_ns = np.zeros(len(operators), np.int64)
        weighted = self._weighted(own)
        np.add.at(taken_ns, place, weighted)
        is_enough = taken_ns <= self._weighted(operators)
        is_inside = is_enough[place]
        inside = np.unique(own[is_inside])
        return _Moved(inside, operators[is_enough], taken_ns[is_enough])

    def _pairs(
        self,
        rows: range,
        node: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Primitives and the operators that asked for them, both chosen and of this track."""
        primitive, operator = self._asked
        ends = [rows.start, rows.stop]
        first, last = np.searchsorted(operator, ends)
        own = np.asarray(primitive[first:last], np.int64)
        asking = np.asarray(operator[first:last], np.int64)
        is_here = (own >= rows.start) & (own < rows.stop)
        own, asking = own[is_here], asking[is_here]
        cls = self._columns.cls
        fits = self.is_primitive[cls[own]]
        fits &= self.is_operator[cls[asking]]
        for side in (own, asking):
            fits &= node[side - rows.start] >= 0
        return own[fits], asking[fits]

    def _times(
        self, part: slice, node: np.ndarray, moved: _Moved | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The time of each span of some rows, and whether it counts."""
        cls = self._columns.cls[part]
        wanted = self.is_primitive if moved is None else self.is_operator
        is_counted = (node >= 0) & wanted[cls]
        weighted = self._weighted(part)
        time_ns = np.where(is_counted, weighted, 0)
        if moved is not None:
            ends = [part.start, part.stop]
            first, last = np.searchsorted(moved.operators, ends)
            operators = moved.operators[first:last] - part.start
            time_ns[operators] -= moved.taken_ns[first:last]
            first, last = np.searchsorted(moved.inside, ends)
            inside = moved.inside[first:last] - part.start
            time_ns[inside] = weighted[inside]
            is_counted[inside] = True
        return time_ns, is_counted


class _Moved(NamedTuple):
    inside: np.ndarray  # rows of primitives, ascending
    operators: np.ndarray  # rows, ascending
    taken_ns: np.ndarray  # of each operator


class _Growing:
    """The tree, to which a node is added for each stack that is new."""

    def __init__(self, trees: FlameTrees, name: int | None) -> None:
        self.parent: list[int] = []
        self.frame: list[int] = []
        self._frames = max(len(trees.names), 1)
        self._frame_of_class = trees.frame_of_class
        self._name = name
        self._is_called = [one == name for one in trees.names]
        self._is_below: list[bool] = []
        self._children: dict[int, int] = {}

    def nodes(
        self,
        columns: TimelineColumns,
        rows: np.ndarray,
        part: slice,
    ) -> np.ndarray:
        """The node of each of some rows of `part`; -1: it lies below no span of the name."""
        if not len(rows):
            return rows
        every, place_of = _with_ancestors(columns.parent, rows, part)
        above = place_of(columns.parent[every].astype(np.int64))
        frame = self._frame_of_class[columns.cls[every]]
        node = np.full(len(every) + 1, -1, np.int64)  # the last one is where -1 leads
        for level in _levels(columns.depth[every]):
            around = node[above[level]] + 1
            code = around * self._frames + frame[level]
            node[level] = self._nodes_of(code)
        found = node[place_of(rows)]
        if self._name is not None:
            is_below = np.array(self._is_below)
            found[~is_below[found]] = -1
        return np.asarray(found)

    def _nodes_of(self, code: np.ndarray) -> np.ndarray:
        """The node of each stack: the number of the node above it, and its own frame."""
        size = (len(self.parent) + 1) * self._frames
        if size > _MOST_TABLE:
            known, place = np.unique(code, return_inverse=True)
            return np.array([self._child(one) for one in known.tolist()], np.int64)[place]
        node_of = np.zeros(size, np.int64)
        node_of[code] = 1
        known = np.flatnonzero(node_of)
        node_of[known] = [self._child(one) for one in known.tolist()]
        return np.asarray(node_of[code])

    def _child(self, code: int) -> int:
        found = self._children.get(code)
        if found is None:
            above, frame = divmod(code, self._frames)
            found = self._children[code] = len(self.parent)
            if found >= MOST_NODES:
                raise UsageError(_TOO_MANY.format(MOST_NODES))
            self.parent.append(above - 1)
            self.frame.append(frame)
            is_inside = above > 0 and self._is_below[above - 1]
            self._is_below.append(is_inside or self._is_called[frame])
        return found


def _levels(depth: np.ndarray) -> list[np.ndarray]:
    """The places of each depth, the outermost first."""
    order = np.argsort(depth, kind="stable")
    ordered = depth[order]
    is_next = ordered[1:] != ordered[:-1]
    bounds = 1 + np.flatnonzero(is_next)
    return np.split(order, bounds)


def _with_ancestors(
    parent: np.ndarray, rows: np.ndarray, part: slice
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The rows, all in `part`, and those around them, in order; and what gives the place of a row
    among them (-1: of none).
    """
    is_in = np.zeros(part.stop - part.start, np.bool_)
    is_in[rows - part.start] = True
    before = np.zeros(0, np.int64)
    front = rows
    while len(front):
        above = parent[front].astype(np.int64)
        is_new = np.zeros(len(is_in), np.bool_)
        is_new[above[above >= part.start] - part.start] = True
        is_new &= ~is_in
        is_in |= is_new
        outer = np.setdiff1d(above[(above >= 0) & (above < part.start)], before)
        before = np.union1d(before, outer)
        front = np.concatenate([outer, part.start + np.flatnonzero(is_new)])
    place = len(before) - 1 + np.cumsum(is_in)

    def place_of(wanted: np.ndarray) -> np.ndarray:
        found = place[np.maximum(wanted - part.start, 0)]
        is_before = wanted < part.start
        outside = wanted[is_before]
        found[is_before] = np.where(outside < 0, -1, np.searchsorted(before, outside))
        return np.asarray(found)

    return np.concatenate([before, part.start + np.flatnonzero(is_in)]), place_of


class _Weights:
    """Weights by node and key, added up whenever they are many."""

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []

    def add(
        self,
        node: np.ndarray,
        key: np.ndarray,
        own_ns: np.ndarray,
        spans: np.ndarray,
    ) -> None:
        """Add those of some spans."""
        piece = np.stack([node, key, own_ns, spans])
        self._pieces.append(_summed(piece))
        if self._size <= MOST_WEIGHTS:
            return
        self._pieces = [self._whole()]
        if self._size > MOST_WEIGHTS:
            raise UsageError(_TOO_MANY.format(MOST_WEIGHTS))

    @property
    def _size(self) -> int:
        sizes = [len(piece[0]) for piece in self._pieces]
        return sum(sizes)

    def _whole(self) -> np.ndarray:
        nothing = np.zeros((4, 0), np.int64)
        pieces = [nothing, *self._pieces]
        joined = np.concatenate(pieces, axis=1)
        return _summed(joined)

    def summed(self) -> list[list[int]]:
        """Nodes, keys, times and numbers of spans."""
        whole = self._whole()
        found: list[list[int]] = whole.tolist()
        return found


def _summed(piece: np.ndarray) -> np.ndarray:
    """One column for each node and key."""
    node, key, *_ = piece
    order = np.lexsort((key, node))
    if not len(order):
        return piece
    ordered = piece[:, order]
    places, weights = ordered[:2], ordered[2:]
    is_new = (places[:, 1:] != places[:, :-1]).any(axis=0)
    first = np.flatnonzero(np.append(True, is_new))
    sums = np.add.reduceat(weights, first, axis=1)
    return np.concatenate([places[:, first], sums])

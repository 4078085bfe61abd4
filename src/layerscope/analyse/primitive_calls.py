"""Spans of a piece, and the calls of primitives among them, for `work_breakdown`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from layerscope.analyse.operator_kinds import Primitive
from layerscope.analyse.step_times import Array, Arrays, Bools

# Different codes are found by a table up to this length, and by sorting beyond.
_MOST_CODES = 1 << 22
# A table of all keys from the least to the greatest may be so many times as long as the keys.
_SPARSE = 4


class PieceSpans(Struct):
    """Spans of a piece, with the place of each key. `moved`: matrix products that called
    primitives.
    """

    columns: Arrays
    moved: Array = field(default_factory=lambda: np.zeros(0, np.intp))
    _low: int = 0
    _where: Array | None = None
    _order: Array | None = None

    def _index(self) -> None:
        """Prepare for `places`: of most pieces nobody asks."""
        span = self.columns["span"]
        highest = int(span.max(initial=0))
        self._low = int(span.min(initial=np.iinfo(np.int64).max))
        size = highest - self._low + 1
        if size <= _SPARSE * len(span):
            self._where = np.full(size, -1, np.int32)
            rows = np.arange(len(span), dtype=np.int32)
            self._where[span - self._low] = rows
        else:
            self._order = np.argsort(span, kind="stable")

    def places(self, keys: Array) -> Array:
        """The row of each key, -1 where it is not here."""
        if self._where is None and self._order is None:
            self._index()
        if self._where is not None:
            at = keys - self._low
            inside = (at >= 0) & (at < len(self._where))
            safe = np.where(inside, at, 0)
            return np.where(inside, self._where[safe], -1)
        return found_in(self.columns["span"], self._order, keys)

    def spent_ns(self, rows: Array) -> Array:
        """Self time of these rows, with their weights."""
        columns = self.columns
        weight = columns["weight"][rows]
        self_ns: Array = columns["self_ns"][rows] * weight
        return self_ns

    def hold(self, callers: Array, calls: PrimitiveCalls) -> Bools:
        """Whether the row of the operator that called each is here, and on the same thread."""
        is_on_thread: Bools = self.columns["track"][callers] == calls.track
        return (callers >= 0) & is_on_thread


def found_in(sorted_by: Array, order: Array | None, keys: Array) -> Array:
    """The place of each key in `sorted_by`, which is sorted by `order` (None: as it stands); -1: it
    is not there.
    """
    if not len(sorted_by):
        return np.full(len(keys), -1, np.int64)
    at = np.minimum(np.searchsorted(sorted_by, keys, sorter=order), len(sorted_by) - 1)
    at = at if order is None else order[at]
    return np.where(sorted_by[at] == keys, at, -1)


class CalledPrimitives(Struct):
    """Rows of the table `primitives`, by span: which operator called it, and its number."""

    span: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    operator: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    primitive: Array = field(default_factory=lambda: np.zeros(0, np.int64))


def joined_rows(parts: list[CalledPrimitives]) -> CalledPrimitives:
    """All rows, in the order of their spans."""
    if not parts:
        return CalledPrimitives()
    span = np.concatenate([part.span for part in parts])
    operator = np.concatenate([part.operator for part in parts])
    primitive = np.concatenate([part.primitive for part in parts])
    order = np.argsort(span, kind="stable")
    return CalledPrimitives(span[order], operator[order], primitive[order])


class PrimitiveCalls(NamedTuple):
    """Calls of primitives: the operator that called each (-1: none), its thread, the number of the
    primitive and its time.
    """

    operator: Array
    track: Array
    number: Array
    ns: Array

    def chosen(self, rows: Array) -> PrimitiveCalls:
        """Some of them."""
        columns = [column[rows] for column in self]
        return PrimitiveCalls._make(columns)

    @staticmethod
    def joined(parts: list[PrimitiveCalls]) -> PrimitiveCalls:
        """All of them."""
        columns = zip(*parts, strict=True)
        return PrimitiveCalls._make(map(np.concatenate, columns))


class NameColumn(Struct):
    """A column of names: the number of each row's name in `texts`, whose last one stands for
    null.
    """

    codes: Array
    texts: list[str]

    @classmethod
    def of(cls, columns: Arrays, name: str) -> NameColumn:
        """The column of that name."""
        texts = columns[f"{name}.names"].tolist()
        codes = columns[name]
        numbers = np.where(codes >= 0, codes, len(texts))
        return cls(numbers, [*texts, ""])


def primitive_of(code: int, columns: list[NameColumn]) -> Primitive:
    """What the number of a triple of names stands for."""
    libraries, kinds, implementations = (column.texts for column in columns)
    code, implementation = divmod(code, len(implementations))
    library, kind = divmod(code, len(kinds))
    return Primitive(libraries[library], kinds[kind], implementations[implementation], False)


def distinct_codes(codes: Array) -> tuple[Array, Array]:
    """The different ones among codes from 0 on, and the place of each code among them."""
    size = int(codes.max(initial=-1)) + 1
    if size > _MOST_CODES:
        distinct, place = np.unique(codes, return_inverse=True)
        return distinct, place
    found = np.flatnonzero(np.bincount(codes, minlength=size))
    places = np.zeros(size, np.int64)
    places[found] = np.arange(len(found))
    return found, places[codes]


def enclosing(here: PieceSpans, rows: Array, layer: int) -> Array:
    """The row of the innermost span of this layer that holds each of these rows; -1: there is
    none.
    """
    parents = here.columns["parent"]
    layers = here.columns["layer"]
    at = here.places(parents[rows])
    while True:
        is_wrong = (at >= 0) & (layers[at] != layer)
        wrong = np.flatnonzero(is_wrong)
        if not len(wrong):
            return at
        around = parents[at[wrong]]
        at[wrong] = here.places(around)

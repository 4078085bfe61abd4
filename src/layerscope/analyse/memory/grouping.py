"""Rows that agree in some columns of integers, as numbers of groups."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.memory.blocks import Array, Int64s
from layerscope.model.distinct import distinct

# Of integers that lie closer together than this a table is made, which is faster than a sort.
_TABLE_SIZE = 1 << 22


class BlockGroups(Struct):
    """`number`: the group of each row, from 0; `first`: a row of each group."""

    number: Int64s
    first: Int64s

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.first)

    def counts(self) -> Int64s:
        """How many rows each has."""
        found: Int64s = np.bincount(self.number, minlength=len(self))
        return found

    def sums(self, values: Array) -> Int64s:
        """The sum of `values` over each; exact below 2**53."""
        found = np.bincount(
            self.number,
            weights=values,
            minlength=len(self),
        )
        return found.astype(np.int64)

    def most(self, values: Array) -> Int64s:
        """The largest of `values`, which are not below zero, in each."""
        count = len(self)
        found = np.zeros(count, np.int64)
        np.maximum.at(found, self.number, values)
        return found


def grouped_by(columns: list[Array]) -> BlockGroups:
    """The groups of rows that agree in all `columns`."""
    number = np.zeros(len(columns[0]), np.int64)
    count = 1
    for column in columns:
        own, own_count = _numbered(column)
        if count > 1:
            # Never more groups than rows, so that the product fits into 64 bits.
            both = number * own_count + own
            own, own_count = _numbered(both)
        number = own
        count = own_count
    first = np.zeros(count, np.int64)
    rows = np.arange(len(number))
    # Of rows that are written to one place the last one stays: the first one of the group.
    first[number[::-1]] = rows[::-1]
    return BlockGroups(number, first)


def _numbered(values: Array) -> tuple[Int64s, int]:
    """Each value as the number of its kind, in ascending order, and how many kinds there are."""
    if not len(values):
        return np.zeros(0, np.int64), 0
    least = int(values.min())
    length = int(values.max()) - least + 1
    if length > _TABLE_SIZE:
        kinds = distinct(values)
        return np.searchsorted(kinds, values), len(kinds)
    shifted = values - least
    is_used = np.zeros(length, np.bool_)
    is_used[shifted] = True
    number_of = np.cumsum(is_used) - 1
    return number_of[shifted], int(number_of[-1]) + 1

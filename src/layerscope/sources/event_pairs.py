"""Spans out of events that begin and end: columns of events in, rows of pairs out. Used by the
sources that read Chrome JSON.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

# Of each kind of pair the phase that begins it and the one that ends it.
SYNC, ASYNC, FRAME = range(3)
_PHASES = (("B", "E"), ("b", "e"), ("(", ")"))
_NONE = -1
# What both events of a pair have in common.
_SAME = ("name", "category", "pid", "tid")


class EventPairs(Struct, frozen=True):
    """The rows of events that belong together, by begin. `kind`: SYNC, ASYNC or FRAME.

    `begins_left`, `ends_left`: how many events have no other half.
    """

    begin: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    begins_left: int
    ends_left: int


def pairs_of(events: dict[str, np.ndarray], is_damaged: bool) -> EventPairs:
    """The pairs among `events`, columns of `ChromeEvents`. `is_damaged`: some could not be read.

    An event and its end that follow each other in the file are a pair. The others were put into
    another order: of those that are alike, each end belongs to the last begin that is still open.
    In a damaged file they are what is left of pairs, unless it is in the order of time.
    """
    begins, ends = _halves(events["phase"])
    before = np.flatnonzero(_is_followed(events, begins, ends))
    is_left = np.ones(len(begins), np.bool_)
    is_left[before] = False
    is_left[before + 1] = False
    if is_damaged and (np.diff(events["at_ns"]) < 0).any():
        is_left[:] = False
    begin, end = _nested(events, begins, ends, np.flatnonzero(is_left))
    both = np.concatenate([before, begin])
    order = np.argsort(both, kind="stable")
    begin = both[order]
    paired = len(begin)
    return EventPairs(
        begin=begin,
        end=np.concatenate([before + 1, end])[order],
        kind=begins[begin],
        begins_left=int(np.count_nonzero(begins != _NONE)) - paired,
        ends_left=int(np.count_nonzero(ends != _NONE)) - paired,
    )


def _halves(phase: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By event the kind of pair that it begins, and the one that it ends."""
    kind_of = np.full((2, 256), _NONE, np.int8)
    for kind, letters in enumerate(_PHASES):
        for half, letter in enumerate(letters):
            kind_of[half, ord(letter)] = kind
    begins, ends = kind_of[:, phase]
    return begins, ends


def _is_followed(events: dict[str, np.ndarray], begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whether each event but the last begins something that the next one ends."""
    opens = begins[:-1]
    is_opening = opens != _NONE
    found: np.ndarray = is_opening & (opens == ends[1:])
    for name in _SAME:
        column = events[name]
        is_same = column[:-1] == column[1:]
        found &= is_same
    return found


def _nested(
    events: dict[str, np.ndarray], begins: np.ndarray, ends: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs among these rows, by time."""
    kind = np.maximum(begins, ends)
    rows = rows[kind[rows] != _NONE]
    by_time = np.argsort(events["at_ns"][rows], kind="stable")
    rows = rows[by_time]
    same = [kind, *(events[name] for name in _SAME)]
    keys = np.column_stack([column[rows] for column in same])
    opens = begins[rows] != _NONE
    open_: dict[tuple[int, ...], list[int]] = {}
    begin, end = [], []
    for row, key, is_begin in zip(rows.tolist(), keys.tolist(), opens.tolist(), strict=True):
        stack = open_.setdefault(tuple(key), [])
        if is_begin:
            stack.append(row)
        elif stack:
            begin.append(stack.pop())
            end.append(row)
    return np.array(begin, np.int64), np.array(end, np.int64)


def twins(
    group: np.ndarray, start: np.ndarray, end: np.ndarray, is_outer: np.ndarray
) -> np.ndarray:
    """Of each span that is not `is_outer`, the row of the outer one of its group that is the same
    thing written twice, -1: none; and -1 for the outer ones themselves.

    A span lies within its twin. Spans of a group do not overlap, but for a twin.
    """
    found = np.full(len(group), _NONE, np.int64)
    order = np.lexsort((start, group))
    outer = order[is_outer[order]]
    inner = order[~is_outer[order]]
    groups = int(group.max(initial=-1)) + 1
    counts = np.bincount(group[outer], minlength=groups)
    inner_counts = np.bincount(group[inner], minlength=groups)
    # Where there are as many of both, the first is the twin of the first, and so on.
    is_even = counts == inner_counts
    one, other = inner[is_even[group[inner]]], outer[is_even[group[outer]]]
    fits = (start[other] <= start[one]) & (end[one] <= end[other])
    is_even[group[one[~fits]]] = False
    one, other = one[is_even[group[one]]], other[is_even[group[other]]]
    found[one] = other
    odd = np.flatnonzero(~is_even & (inner_counts > 0) & (counts > 0))
    _find_twins(odd, (group, start, end), inner, outer, found)
    return found


def _find_twins(
    groups: np.ndarray,
    spans: tuple[np.ndarray, np.ndarray, np.ndarray],
    inner: np.ndarray,
    outer: np.ndarray,
    found: np.ndarray,
) -> None:
    """The twins in these groups, one after the other; `inner` and `outer` are in the order of
    groups and starts.
    """
    group, start, end = spans
    first_inner, first_outer = (np.searchsorted(group[rows], groups) for rows in (inner, outer))
    last_inner, last_outer = (
        np.searchsorted(group[rows], groups, side="right") for rows in (inner, outer)
    )
    for number in range(len(groups)):
        left = outer[first_outer[number] : last_outer[number]].tolist()
        left.reverse()
        for row in inner[first_inner[number] : last_inner[number]].tolist():
            while left and end[left[-1]] < end[row]:
                left.pop()
            if left and start[left[-1]] <= start[row]:
                found[row] = left.pop()

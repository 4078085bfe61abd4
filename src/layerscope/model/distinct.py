"""The different values of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The different values, ascending. `np.unique` does the same and imports numpy.ma, which takes
    30 ms of every recording.
    """
    ordered = np.sort(values, axis=None)
    is_new = np.ones(len(ordered), np.bool_)
    differs = ordered[1:] != ordered[:-1]
    is_new[1:] = differs
    return ordered[is_new]


def with_places(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The different values, ascending, and the place of each value among them."""
    order = np.argsort(values, kind="stable")
    ordered = values.take(order)
    is_new = np.ones(len(ordered), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    place = np.empty(len(ordered), np.intp)
    place[order] = np.cumsum(is_new) - 1
    return ordered[is_new], place


def first_rows(values: NDArray[Any]) -> NDArray[np.intp]:
    """The first row of each different value, in the order of values."""
    order = np.argsort(values, kind="stable")
    ordered = values.take(order)
    is_new = np.ones(len(ordered), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return order[is_new]


def among(values: NDArray[Any], known: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the values are among the known ones. `np.isin` may call `np.unique`."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(known)
    place = np.searchsorted(ordered, values)
    nearest = ordered.take(place, mode="clip")
    found: NDArray[np.bool_] = nearest == values
    return found

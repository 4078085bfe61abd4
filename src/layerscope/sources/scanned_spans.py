"""The spans of a trace of Kineto as native/traces/spans.c keeps them. Used by `trace_scan`."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
from msgspec import Struct, field

# As lt_place has them.
PLACE = np.dtype(
    [
        ("stream", "<i8"),
        ("device", "<i8"),
        ("forward", "<i8"),
        ("category", "<i4"),
        ("pid", "<i4"),
        ("tid", "<i4"),
        ("flags", "<i4"),
    ]
)
# As lt_take_spans gives them.
_COLUMNS: dict[str, type[Any]] = {
    "time_ns": np.int64,
    "duration_ns": np.int64,
    "name": np.int32,
    "args": np.int32,
    "external": np.int32,
    "correlation": np.int32,
    "sequence": np.int32,
    "place": np.int32,
}
_FIRST_WIDE = -2


def _no_columns() -> dict[str, np.ndarray]:
    columns = {}
    for name, kind in _COLUMNS.items():
        columns[name] = np.zeros(0, kind)
    return columns


def _no_places() -> np.ndarray:
    return np.zeros(0, PLACE)


def _no_numbers() -> np.ndarray:
    return np.zeros(0, np.int64)


class ScannedSpans(Struct):
    """The spans of a file as columns, in the order of the file.

    `time_ns`, `duration_ns`; `name` and `args`: numbers of texts, -1: none. `external` and
    `correlation`: numbers above 0 as they are, below 0 those that `whole` knows; 0: none.
    `sequence`: -1: none. `place`: index into `places`, which say what many spans have in common.
    """

    columns: dict[str, np.ndarray] = field(default_factory=_no_columns)
    places: np.ndarray = field(default_factory=_no_places)
    wide: np.ndarray = field(default_factory=_no_numbers)

    def whole(self, numbers: np.ndarray) -> np.ndarray:
        """What these numbers of `external` or `correlation` stand for."""
        is_wide = numbers < 0
        if not is_wide.any():
            return numbers
        found = numbers.astype(np.int64)
        found[is_wide] = self.wide[_FIRST_WIDE - found[is_wide]]
        return found


def taken(library: ctypes.CDLL, handle: int, places: bytes, wide: bytes) -> ScannedSpans:
    """Take the spans out of the scan `handle`. `places`, `wide`: its tables of these."""
    addresses = (ctypes.c_void_p * len(_COLUMNS))()
    count = library.lt_take_spans(handle, addresses)
    columns = {}
    for (name, kind), address in zip(_COLUMNS.items(), addresses, strict=True):
        columns[name] = _owned(library, address, kind, count)
    return ScannedSpans(columns, np.frombuffer(places, PLACE), np.frombuffer(wide, np.int64))


def _owned(library: ctypes.CDLL, address: int | None, kind: Any, count: int) -> np.ndarray:
    """A column in the memory at this address, which is given back with the last array over it."""
    if not address:
        return np.zeros(0, kind)
    size = count * np.dtype(kind).itemsize
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, library.lt_give_back, address)
    column: np.ndarray = np.frombuffer(memory, kind)
    return column

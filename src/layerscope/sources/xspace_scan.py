"""Events of an XSpace as columns, by the scan of native/traces: no event is an object of Python.
Used by `xplane_planes`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from layerscope.model.errors import ReadError
from layerscope.sources import trace_scan
from layerscope.sources.wire import Wire

_CUT, _DAMAGED = 1, 2
_WORD = (1 << 64) - 1
# LT_XFIELDS of native/traces/traces.h, and what a text of a row is (LT_XROW).
_FIELDS = 16
_ROW = np.dtype([("metadata", "<i8"), ("stats", "<i4"), ("has_correlation", "u1")])
_INT32, _INT64, _UINT64 = (np.dtype(kind) for kind in (np.int32, np.int64, np.uint64))
_COLUMNS = ("row", "offset_ps", "duration_ps", "correlation")


class EventKind(NamedTuple):
    """What many events of a line have in common. `stats`: the number of a text of
    `PlaneScan.texts`.
    """

    metadata: int
    stats: int
    has_correlation: bool


class ScannedLine(Struct):
    """The events of a line: what each has, and the `rows` that `row` numbers. `about`: the last
    one of the other fields of each number.
    """

    about: dict[int, int | tuple[int, int]]
    rows: list[EventKind]
    row: np.ndarray
    offset_ps: np.ndarray
    duration_ps: np.ndarray
    correlation: np.ndarray


class _LineField(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("is_there", "is_bytes", "value", "end")]


class _LineColumns(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in (*_COLUMNS, "rows")),
        ("row_count", ctypes.c_int64),
        ("sets", ctypes.c_void_p),
        ("set_at", ctypes.c_void_p),
        ("set_count", ctypes.c_int64),
    ]


class PlaneScan:
    """The scan of one plane. `texts`: the stats of events, each different set once, as a message
    whose fields they are; the first is empty.
    """

    def __init__(self, library: ctypes.CDLL, handle: int, wire: Wire) -> None:
        self._library = library
        self._handle = handle
        self._wire = wire
        self.texts: list[bytes] = [b""]

    def line(self, begin: int, end: int) -> ScannedLine:
        """The line between these places of the file."""
        found = (_LineField * _FIELDS)()
        trouble = ctypes.c_int64()
        data = self._wire.data
        places = begin, end, found, ctypes.byref(trouble)
        count = self._library.lt_plane_line(self._handle, data, *places)
        if count < 0:
            raise MemoryError
        self._wire.is_cut |= bool(trouble.value & _CUT)
        self._wire.is_damaged |= bool(trouble.value & _DAMAGED)
        addresses = _LineColumns()
        self._library.lt_plane_columns(self._handle, ctypes.byref(addresses))
        self._add_texts(addresses)
        told = _copied(addresses.rows, _ROW, addresses.row_count)
        order = np.argsort(told, order=_ROW.names)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        about = {
            number: (one.value, one.end) if one.is_bytes else one.value & _WORD
            for number, one in enumerate(found)
            if one.is_there
        }
        return ScannedLine(
            about,
            rows=[EventKind(*one) for one in told[order].tolist()],
            row=place[_copied(addresses.row, _INT32, count)],
            offset_ps=_copied(addresses.offset_ps, _INT64, count),
            duration_ps=_copied(addresses.duration_ps, _INT64, count),
            correlation=_copied(addresses.correlation, _INT64, count),
        )

    def _add_texts(self, addresses: _LineColumns) -> None:
        """Take the sets of stats that are new."""
        known = len(self.texts)
        bounds = _copied(addresses.set_at, _UINT64, addresses.set_count + 1)[known:].tolist()
        for first, last in pairwise(bounds):
            text = ctypes.string_at(addresses.sets + first, last - first)
            self.texts.append(text)


@contextmanager
def scanned(wire: Wire, special: dict[int, bool]) -> Iterator[PlaneScan]:
    """The scan of a plane of a file. `special`: numbers of stats that are not kept, and whether
    each is the correlation. ReadError when the library is not there.
    """
    library = _library()
    if library is None:
        raise ReadError(
            "an XSpace cannot be read without the part of layerscope that is compiled, which is "
            "not here: install a C compiler (for example gcc), then install layerscope again"
        )
    numbers = np.array(sorted(special), np.int64)
    is_correlation = np.array([special[one] for one in numbers.tolist()], np.uint8)
    places = numbers.ctypes.data, is_correlation.ctypes.data
    handle = library.lt_plane_new(*places, len(numbers))
    if not handle:
        raise MemoryError
    try:
        yield PlaneScan(library, handle, wire)
    finally:
        library.lt_plane_free(handle)


def _copied(address: int | None, kind: np.dtype[Any], count: int) -> np.ndarray:
    """What the scan has in one of its columns."""
    size = kind.itemsize * count
    if not size:
        return np.zeros(0, kind)
    content = ctypes.string_at(address or 0, size)
    found: np.ndarray = np.frombuffer(content, kind)
    return found


def _library() -> ctypes.CDLL | None:
    """None: it is not there, or of other sources."""
    library = trace_scan.compiled_scan()
    if library is None:
        return None
    place, number = ctypes.c_void_p, ctypes.c_int64
    library.lt_plane_new.restype = place
    library.lt_plane_new.argtypes = [place, place, number]
    library.lt_plane_line.restype = number
    library.lt_plane_line.argtypes = [place, ctypes.c_char_p, number, number, place, place]
    library.lt_plane_columns.restype = library.lt_plane_free.restype = None
    library.lt_plane_columns.argtypes = [place, place]
    library.lt_plane_free.argtypes = [place]
    return library

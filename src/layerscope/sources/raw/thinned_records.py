"""Of records as a raw file has them, byte column by byte column, those that are read in any case,
when a watcher reads a part of the others: what is no span, steps, and long spans. Used by
`growing`.
"""

from __future__ import annotations

import numpy as np

from layerscope.rawfile import dtypes, layout

# In ticks of the raw file: a third of a millisecond or a whole one. Shorter ones end in the stretch
# of a tenth of a second in which they began.
LONG_TICKS = 1 << 20
# A difference of times is looked at by these bytes first.
_MIDDLE, _MIDDLE_BITS = slice(2, 6), 16
_CERTAIN = (LONG_TICKS >> _MIDDLE_BITS) - 1
# More about one span has as many records at most.
_MOST_EXTRAS = 4
_OF_STEPS = (layout.OPTIMIZER, layout.LOADER)
_PERHAPS_OF_STEPS = (*_OF_STEPS, layout.MODULE)
_NOBODY_ADDS_UP = (layout.ALLOCATION, layout.RELEASE, layout.EXTRA)


def kept_rows(table: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The places of the records that stay of `table`, a row for each byte of a record; `steps`: the
    numbers of names of spans that are steps.
    """
    kind = _column(table, "kind")[0]
    is_kept = kind >= layout.FIRST_SPECIAL
    is_kept &= ~np.isin(kind, _NOBODY_ADDS_UP)
    is_span = kind < layout.FIRST_SPECIAL
    is_kept |= is_span & _is_long(table)
    perhaps = np.flatnonzero(is_span if len(steps) else np.isin(kind, _PERHAPS_OF_STEPS))
    seq, name = _whole(table, "seq", perhaps), _whole(table, "name", perhaps)
    is_kept[perhaps] |= is_of_step(kind[perhaps], seq, name, steps)
    is_extra = kind == layout.EXTRA
    if is_extra.any():
        for _ in range(_MOST_EXTRAS):
            is_kept[1:] |= is_extra[1:] & is_kept[:-1]
    return np.flatnonzero(is_kept)


def is_of_step(
    kind: np.ndarray, seq: np.ndarray, name: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Which of these spans tell where steps end: by a rule of `ingest.live.steps`."""
    found = np.isin(kind, _OF_STEPS)
    is_module = kind == layout.MODULE
    found |= is_module & (seq == 0)
    if len(steps):
        is_span = kind < layout.FIRST_SPECIAL
        found |= np.isin(name, steps) & is_span
    return found


def spans_among(table: np.ndarray) -> int:
    """How many of the records are spans."""
    kind = _column(table, "kind")[0]
    is_span = kind < layout.FIRST_SPECIAL
    count = np.count_nonzero(is_span)
    return int(count)


def _is_long(table: np.ndarray) -> np.ndarray:
    """Which took LONG_TICKS at least, if they are spans."""
    start, end = _column(table, "start"), _column(table, "end")
    middle = _numbers(end[_MIDDLE], "<u4") - _numbers(start[_MIDDLE], "<u4")
    is_long: np.ndarray = middle >= _CERTAIN
    perhaps = np.flatnonzero(is_long)
    dur = _numbers(end[:, perhaps], "<u8") - _numbers(start[:, perhaps], "<u8")
    is_long[perhaps] = dur.astype(np.int64) >= LONG_TICKS
    return is_long


def _column(table: np.ndarray, name: str) -> np.ndarray:
    """The bytes of a field of all records."""
    kind, offset, *_ = dtypes.RECORD.fields[name]  # type: ignore[index]
    found: np.ndarray = table[offset : offset + kind.itemsize]
    return found


def _whole(table: np.ndarray, name: str, rows: np.ndarray) -> np.ndarray:
    """A field of four bytes of these records."""
    return _numbers(_column(table, name)[:, rows], "<u4")


def _numbers(bytes_of: np.ndarray, kind: str) -> np.ndarray:
    """The numbers of which each has a column here."""
    found: np.ndarray = np.ascontiguousarray(bytes_of.T).view(kind)[:, 0]
    return found

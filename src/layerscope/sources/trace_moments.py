"""Instants and counters of a trace in Chrome's format as marks and values. Used by the sources that
read it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layerscope.model.distinct import with_places
from layerscope.sources.imported import ImportedMoments
from layerscope.sources.trace_scan import HAS_VALUE, Columns, ScannedTrace

# The tracks of threads, by the numbers of pid and tid.
Place = Callable[[np.ndarray, np.ndarray], np.ndarray]
_NO_SERIES = ("", "value")
_ALL = ("at_ns", "track", "name", "value", "is_mark")


def joined(parts: list[ImportedMoments]) -> ImportedMoments:
    """All of them."""
    columns = {}
    for name in _ALL:
        pieces = [getattr(part, name) for part in parts]
        columns[name] = np.concatenate(pieces)
    return ImportedMoments(**columns)


def marks_of(
    trace: ScannedTrace, rows: Columns, threads: Place, names: dict[str, int]
) -> ImportedMoments:
    """Instants as marks."""
    number = _by_distinct(rows["name"], lambda code: _one_line(trace, code), names)
    return ImportedMoments(
        at_ns=rows["time_ns"],
        track=threads(rows["pid"], rows["tid"]),
        name=number,
        value=np.zeros(len(number), np.int64),
        is_mark=np.ones(len(number), np.bool_),
    )


def values_of(
    trace: ScannedTrace, rows: Columns, threads: Place, names: dict[str, int]
) -> ImportedMoments:
    """Counters, each on the track that is called as its process."""
    kept = np.flatnonzero((rows["flags"] & HAS_VALUE) != 0)
    rows = {name: values.take(kept) for name, values in rows.items()}
    series = len(trace.arguments) + 1
    process = len(trace.scalars) + 1
    key = (rows["name"].astype(np.int64) + 1) * series + rows["args"] + 1
    key = key * process + rows["pid"] + 1

    def text(packed: int) -> str:
        """The name of the counter that these numbers were packed of."""
        packed, pid = divmod(packed, process)
        name, one = divmod(packed, series)
        return _counter(trace, name - 1, one - 1, pid - 1)

    return ImportedMoments(
        at_ns=rows["time_ns"],
        track=threads(rows["pid"], rows["tid"]),
        name=_by_distinct(key, text, names),
        value=rows["duration_ns"],
        is_mark=np.zeros(len(kept), np.bool_),
    )


def _counter(trace: ScannedTrace, name: int, series: int, pid: int) -> str:
    """The name of a counter, and in a second line its domain."""
    called = _one_line(trace, name)
    one = trace.arguments[series] if series >= 0 else ""
    whole = called
    if one not in (*_NO_SERIES, called):
        whole = f"{called}.{one}".replace("\n", " ")
    process = trace.scalars[pid] if pid >= 0 else ""
    domain = "trace"
    if isinstance(process, str) and process:
        domain = process
    return f"{whole}\n{domain}"


def _one_line(trace: ScannedTrace, code: int) -> str:
    """A name without ends of lines."""
    name = trace.names[code] if code >= 0 else ""
    words = name.split()
    return " ".join(words)


def _by_distinct(
    codes: np.ndarray, text_of: Callable[[int], str], names: dict[str, int]
) -> np.ndarray:
    """The number of the text of each code, asked once for those that are alike."""
    used, place = with_places(codes)
    texts = map(text_of, used.tolist())
    numbers = [names.setdefault(text, len(names)) for text in texts]
    found: np.ndarray = np.array(numbers, np.int32)[place]
    return found

"""Events of Chrome JSON as columns, for traces that may be only a fragment of a file, by the scan
of native/traces. Used by `mxnet_trace`.

A profiler that writes its trace bit by bit leaves files that are no valid JSON when it is killed,
or when its output file is changed while it runs: the header is missing, or the end, or both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec import Struct, field

from layerscope.sources.trace_rows import named
from layerscope.sources.trace_scan import (
    HAS_TIME,
    HAS_VALUE,
    IMPOSSIBLE,
    Columns,
    ScannedTrace,
    scan,
)

# A century after 1970.
_MOST_NS = 3_155_760_000_000_000_000
_METADATA = ord("M")
_WANTED = ("phase", "flags", "name", "category", "time_ns", "pid", "tid", "args", "duration_ns")


class ChromeEvents(Struct):
    """The events of a file in its order, as columns; `name`, `category`, `pid` and `tid` are the
    numbers of the values in the tables of the same name.

    `process_names`: by the pid, as the trace names it. `rejected`: how many events could not be
    read, of which `example` was the first. `has_header`, `has_end`: whether the file has them.
    `is_cut`: it ends within an event.
    """

    columns: Columns
    names: list[str]
    categories: list[str]
    pids: list[int | str]
    tids: list[int | str]
    process_names: dict[int | str, str] = field(default_factory=dict)
    rejected: int = 0
    example: str = ""
    has_header: bool = False
    has_end: bool = False
    is_cut: bool = False


class _Blocks:
    """What is kept of the blocks of a scan."""

    def __init__(self) -> None:
        """Nothing so far."""
        self.parts: list[Columns] = []
        self.of_names: list[Columns] = []

    def take(self, block: Columns) -> None:
        """Copy what is wanted of a block."""
        is_metadata = block["phase"] == _METADATA
        for rows, kept in ((is_metadata, self.of_names), (~is_metadata, self.parts)):
            places = np.flatnonzero(rows)
            copied = {name: block[name].take(places) for name in _WANTED}
            kept.append(copied)


def read_events(path: Path) -> ChromeEvents:
    """The events of the file `path`, which may be packed with gzip. ReadError when it cannot be
    read.
    """
    blocks = _Blocks()
    trace = scan(path, blocks.take)
    rows = _joined(blocks.parts)
    time_ns = rows["time_ns"]
    is_timed = (rows["flags"] & (HAS_TIME | IMPOSSIBLE)) == HAS_TIME
    is_possible = is_timed & (time_ns >= 0) & (time_ns < _MOST_NS)
    is_possible &= (rows["phase"] > 0) & (rows["phase"] < 128)
    wrong = np.flatnonzero(~is_possible)
    example = trace.example
    if len(wrong) and not example:
        example = _told(trace, rows, int(wrong[0]))
    possible = {name: values.compress(is_possible) for name, values in rows.items()}
    of_names = _joined(blocks.of_names)
    return ChromeEvents(
        columns=_columns(possible),
        names=[*trace.names, ""],
        categories=[*trace.categories, ""],
        pids=[*trace.scalars, -1],
        tids=[*trace.scalars, -1],
        process_names=_process_names(trace, of_names),
        rejected=trace.damaged + len(wrong),
        example=example,
        has_header=trace.has_header,
        has_end=trace.has_end,
        is_cut=trace.is_cut,
    )


def _joined(parts: list[Columns]) -> Columns:
    """All blocks as one."""
    found = {}
    for name in _WANTED:
        pieces = [part[name] for part in parts]
        nothing = np.zeros(0, np.int64)
        found[name] = np.concatenate(pieces) if pieces else nothing
    return found


def _columns(rows: Columns) -> Columns:
    """What is not told has the number of the last text."""
    return {
        "phase": rows["phase"],
        "name": rows["name"],
        "category": rows["category"],
        "at_ns": rows["time_ns"],
        "pid": rows["pid"],
        "tid": rows["tid"],
        "value": rows["duration_ns"],
        "has_value": (rows["flags"] & HAS_VALUE) != 0,
    }


def _process_names(trace: ScannedTrace, rows: Columns) -> dict[int | str, str]:
    found: dict[int | str, str] = {}
    for (pid, _), name in named(trace, rows, "process_name").items():
        if pid >= 0:
            value = trace.scalars[pid]
            found[value] = name
    return found


def _told(trace: ScannedTrace, rows: Columns, row: int) -> str:
    """An event that cannot be, for people."""
    code = int(rows["name"][row])
    phase = int(rows["phase"][row])
    at_ns = int(rows["time_ns"][row])
    at_us = at_ns / 1000
    name = trace.names[code] if code >= 0 else ""
    letter = chr(phase) if phase else ""
    return f"{letter!r} {name!r} at {at_us:g}"

"""The rows of a scanned trace, gathered from its blocks: spans, instants, counters, arrows, and
what names threads. Used by the sources that read Chrome JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from layerscope.model.distinct import distinct, with_places
from layerscope.sources.scanned_spans import ScannedSpans
from layerscope.sources.trace_scan import (
    HAS_TIME,
    IMPOSSIBLE,
    NONE,
    ODD_ARGUMENTS,
    Columns,
    ScannedTrace,
    as_json,
    scan,
)

# The letters of phases by what becomes of them.
NAMES = "M"
# Those of Kineto; any profiler's.
GROUPS = {"spans": "X", "instants": "iIRn", "counters": "C", "arrows": "sft"}
ALL_GROUPS = {**GROUPS, "ends": "BE", "async": "beSF"}
# Of what names threads the arguments are asked for, not the times.
_NAMES = "names"
_MOST_COUNTED = 1 << 20
_WANTED = {
    "spans": (
        "flags category name pid tid args time_ns duration_ns external correlation stream device "
        "sequence forward"
    ),
    "instants": (
        "flags category name pid tid args time_ns external correlation stream device sequence "
        "forward"
    ),
    "counters": "flags category name pid tid args time_ns duration_ns",
    "arrows": "phase category pid tid time_ns id",
    "ends": "phase category name pid tid args time_ns",
    "async": "phase category name pid tid args time_ns id",
    _NAMES: "name pid tid args",
}


class TraceRows:
    """Takes blocks of a scan; `columns` gives the rows of a group. `rejected`: events without a
    time, or with one that cannot be. `unknown`: by letter, how many events of other phases.
    """

    def __init__(self, groups: dict[str, str] = GROUPS) -> None:
        """Nothing so far; `groups`: which phases belong together."""
        self.groups = groups
        self.rejected = 0
        self.unknown: dict[str, int] = {}
        self.odd: set[int] = set()
        self._parts: dict[str, list[Columns]] = {}
        for group in (*groups, _NAMES):
            self._parts[group] = []
        nothing = len(groups) + 1
        self._group_of = np.full(256, nothing, np.int8)
        phases = (*groups.values(), NAMES)
        for number, letters in enumerate(phases):
            for letter in letters:
                self._group_of[ord(letter)] = number

    def take(self, block: Columns) -> None:
        """Copy what is wanted of a block."""
        group = self._group_of[block["phase"]]
        flags = block["flags"]
        is_named = group == len(self.groups)
        is_timed = (flags & (HAS_TIME | IMPOSSIBLE)) == HAS_TIME
        is_known = group < len(self.groups)
        self.rejected += int(np.count_nonzero(is_known & ~is_timed))
        for number, name in enumerate(self.groups):
            is_own = group == number
            self._add(name, block, np.flatnonzero(is_own & is_timed))
        self._add(_NAMES, block, np.flatnonzero(is_named))
        is_unknown = ~(is_known | is_named)
        self._note_unknown(block["phase"][is_unknown])
        is_odd = (flags & ODD_ARGUMENTS) != 0
        if is_odd.any():
            args = block["args"][is_odd]
            self.odd.update(distinct(args).tolist())

    def _add(self, group: str, block: Columns, rows: np.ndarray) -> None:
        """Copy these rows of a block."""
        if not len(rows):
            return
        wanted = _WANTED[group].split()
        self._parts[group].append({name: block[name].take(rows) for name in wanted})

    def _note_unknown(self, phases: np.ndarray) -> None:
        """Count the events of phases that nobody asked for."""
        counts = np.bincount(phases, minlength=1)
        for letter in np.flatnonzero(counts).tolist():
            name = chr(letter) if letter else ""
            before = self.unknown.get(name, 0)
            self.unknown[name] = before + int(counts[letter])

    @property
    def has_rows(self) -> bool:
        """Whether there is any event."""
        return any(self._parts.values())

    def columns(self, group: str) -> Columns:
        """All rows of a group, which are handed over."""
        found, self._parts[group] = self._parts[group], []
        columns = {}
        for name in _WANTED[group].split():
            pieces = [part.pop(name) for part in found]
            columns[name] = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
        return columns


def gather(
    path: Path, numbers: bool = False, groups: dict[str, str] = GROUPS
) -> tuple[ScannedTrace, TraceRows]:
    """The rows of a file, and what it has beside them."""
    rows = TraceRows(groups)
    found = scan(path, rows.take, numbers)
    for code in rows.odd | _odd_arguments(found.spans):
        if code < 0:
            continue
        text = found.arguments[code]
        found.arguments[code] = as_json(text)
    return found, rows


def _odd_arguments(spans: ScannedSpans) -> set[int]:
    """Arguments of spans that are no JSON as they are written."""
    is_odd = (spans.places["flags"] & ODD_ARGUMENTS) != 0
    if not is_odd.any():
        return set()
    of_odd = np.isin(spans.columns["place"], np.flatnonzero(is_odd))
    codes = distinct(spans.columns["args"][of_odd])
    return set(codes.tolist())


def named(trace: ScannedTrace, names: Columns, wanted: str) -> dict[tuple[int, int], str]:
    """What the events of this name call a process or a thread, by the numbers of pid and tid."""
    if wanted not in trace.names:
        return {}
    code = trace.names.index(wanted)
    rows = np.flatnonzero((names["name"] == code) & (names["args"] >= 0))
    found = {}
    for row in rows.tolist():
        text = _name_in(trace.arguments[names["args"][row]])
        if text is not None:
            found[int(names["pid"][row]), int(names["tid"][row])] = text
    return found


def _name_in(text: str) -> str | None:
    """What the arguments of an event give as a name."""
    try:
        name = msgspec.json.decode(text.encode()).get("name")
    except (msgspec.MsgspecError, UnicodeError, AttributeError):
        return None
    return None if name is None else str(name)


def by_pair(one: np.ndarray, other: np.ndarray, number_of: Callable[[int, int], int]) -> np.ndarray:
    """What `number_of` says of each pair of numbers, asked once for those that are alike."""
    if not len(one):
        return np.zeros(0, np.int32)
    ones, place = _different(one)
    others, beside = _different(other)
    keys, row = _different(place * len(others) + beside)
    found = np.zeros(len(keys), np.int32)
    for at, key in enumerate(keys.tolist()):
        left, right = divmod(key, len(others))
        pair = int(ones[left]), int(others[right])
        found[at] = number_of(*pair)
    numbers: np.ndarray = found.take(row)
    return numbers


def _different(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different numbers, and the place of each among them. Small ones are counted, which is
    quicker than to put them in order.
    """
    least, most = int(values.min()), int(values.max())
    if most - least > _MOST_COUNTED:
        keys, place = with_places(values)
        return keys, place
    is_there = np.zeros(most - least + 1, np.bool_)
    since_least = values - least
    is_there[since_least] = True
    keys = np.flatnonzero(is_there)
    place_of = np.zeros(len(is_there), np.int64)
    place_of[keys] = np.arange(len(keys))
    return keys + least, place_of.take(since_least)


def or_none(values: np.ndarray, least: int, most: int) -> np.ndarray:
    """Numbers that are told and between these two; -1: none."""
    is_told = values != NONE
    is_possible = (values >= least) & (values <= most)
    return np.where(is_told & is_possible, values, -1)

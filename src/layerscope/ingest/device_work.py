"""Which call launched each piece of work of a GPU, and which operator asked for it. Used by
`conversion` and `epochs`.

A call of a runtime and all that it launched have a number in common, the correlation; a graph
launches many kernels at once. The operator is the one that the source names, else the innermost one
around the call. Step and phase of the work are those of the call: it may execute much later.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.ingest.primitives import enclosing_operators, links_of
from layerscope.ingest.spans import (
    FUNCTION,
    KERNEL,
    LAUNCH,
    MEMSET,
    MODULE,
    RUNTIME,
    Columns,
    rows_of,
)
from layerscope.model.distinct import first_rows
from layerscope.model.layers import LINKS

LAUNCH_GPU, OPERATOR_GPU = LINKS.index("launch_gpu"), LINKS.index("operator_gpu")
_NONE = -1
_MOST_RUNS = 31  # an odd number: with one more they are pairs


class _Known(Struct):
    """Rows of numbers that come piece by piece, found by the first of them. Of several with the
    same one the first that came counts.

    They are in order in runs. Numbers grow with time, so most runs have none in common, and few
    are looked at.
    """

    width: int
    _runs: list[np.ndarray] = field(default_factory=list)
    _fresh: list[np.ndarray] = field(default_factory=list)

    def add(self, *columns: np.ndarray) -> None:
        """Take in some rows."""
        rows = np.column_stack(columns)
        numbers = rows.astype(np.int64, copy=False)
        self._fresh.append(numbers)

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row of each of these keys, and whether there is one."""
        if self._fresh:
            self._put_in_order()
        found = np.full((len(keys), self.width), _NONE)
        is_there = np.zeros(len(keys), np.bool_)
        for run in self._runs:
            known = run[:, 0]
            may_be = (keys >= known[0]) & (keys <= known[-1])
            left = np.flatnonzero(may_be & ~is_there)
            place = np.searchsorted(known, keys[left])
            is_here = known[place] == keys[left]
            found[left[is_here]] = run[place[is_here]]
            is_there[left[is_here]] = True
        return found, is_there

    def _put_in_order(self) -> None:
        """Make a run of what is new. Where there are many, neighbours become one."""
        self._runs.append(_first_of(self._fresh))
        self._fresh.clear()
        if len(self._runs) > _MOST_RUNS:
            pairs = zip(self._runs[::2], self._runs[1::2], strict=True)
            self._runs = [_first_of([*pair]) for pair in pairs]


def _first_of(parts: list[np.ndarray]) -> np.ndarray:
    """The rows of all parts by their first number, each of these once."""
    rows = np.concatenate(parts)
    return rows[first_rows(rows[:, 0])]


def _calls() -> _Known:
    return _Known(5)


def _operators() -> _Known:
    return _Known(2)


class DeviceWork(Struct):
    """Of one process. `_calls`: correlation, key, start, track, and the key of the operator around
    it. `_named`: the number by which work names its operator, and its key. `_waiting`: correlation,
    number of the operator and key of work that has no links so far.
    """

    _calls: _Known = field(default_factory=_calls)
    _named: _Known = field(default_factory=_operators)
    _waiting: list[np.ndarray] = field(default_factory=list)

    def add(self, rows: np.ndarray, key: np.ndarray, parent: np.ndarray, track: int) -> None:
        """Take in spans of a track with this key, rows of `SPAN`, with their keys and parents."""
        kind = rows["kind"]
        if kind.max(initial=0) >= KERNEL:
            self._add_calls(rows, key, parent, track)
            work = np.flatnonzero((kind >= KERNEL) & (kind <= MEMSET))
            if len(work):
                found = rows["origin"][work], rows["submitter"][work], key[work]
                self._waiting.append(np.column_stack(found))
        is_submitted = (kind == FUNCTION) & (rows["origin"] != 0)
        named = np.flatnonzero((kind < MODULE) & (rows["submitter"] > 0) & ~is_submitted)
        if len(named):
            self._named.add(rows["submitter"][named], key[named])

    def _add_calls(self, rows: np.ndarray, key: np.ndarray, parent: np.ndarray, track: int) -> None:
        kind = rows["kind"]
        correlation = rows["origin"]
        is_call = (kind >= LAUNCH) & (kind <= RUNTIME)
        calls = np.flatnonzero(is_call & (correlation != 0))
        if not len(calls):
            return
        # What launches comes before what only looks like it.
        is_other = kind[calls] != LAUNCH
        order = np.argsort(is_other, kind="stable")
        calls = calls[order]
        inside = rows_of(key, parent)
        around = enclosing_operators(kind, calls, inside)
        operator = np.where(around >= 0, key[around], _NONE)
        start_ns = rows["start"][calls]
        of_track = np.full(len(calls), track)
        self._calls.add(correlation[calls], key[calls], start_ns, of_track, operator)

    def links(self, is_all: bool) -> list[Columns]:
        """Links of calls and operators with work, each given once; `is_all`: nothing more will
        come.
        """
        if not self._waiting:
            return []
        work = np.concatenate(self._waiting)
        correlation, number, key = work.T
        call, has_call = self._calls.find(correlation)
        named, has_name = self._named.find(number)
        has_call &= correlation != 0
        has_name &= number != 0
        is_known = (has_call | (correlation == 0)) & (has_name | (number == 0))
        ready = is_known | is_all
        self._waiting = [] if ready.all() else [work[~ready]]
        launched = np.flatnonzero(ready & has_call)
        around = np.where(has_call, call[:, 4], _NONE)
        operator = np.where(has_name, named[:, 1], around)
        asked = np.flatnonzero(ready & (operator >= 0))
        return [
            links_of(call[launched, 1], key[launched], LAUNCH_GPU),
            links_of(operator[asked], key[asked], OPERATOR_GPU),
        ]

    def asked(
        self, columns: Columns, process: np.ndarray, asked_ns: np.ndarray, track: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """When and on which track the spans were asked for: of work that was launched, the start of
        the call and its track. `process`: whether each span is of this one.
        """
        kind = columns["kind_code"]
        work = np.flatnonzero(process & (kind >= KERNEL) & (kind <= MEMSET))
        if not len(work):
            return asked_ns, track
        call, has_call = self._calls.find(columns["correlation"][work])
        asked_ns, track = asked_ns.copy(), track.copy()
        launched = work[has_call]
        asked_ns[launched] = call[has_call, 2]
        track[launched] = call[has_call, 3]
        return asked_ns, track

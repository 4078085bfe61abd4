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


class _Known(Struct):
    """Rows of numbers that come piece by piece, found by the first of them. Of several with the
    same one the first that came counts.
    """

    width: int
    _rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
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
        if not len(self._rows):
            nothing = np.full((len(keys), self.width), _NONE)
            return nothing, np.zeros(len(keys), np.bool_)
        known = self._rows[:, 0]
        place = np.searchsorted(known, keys)
        place = np.minimum(place, len(known) - 1)
        found = self._rows[place]
        return found, found[:, 0] == keys

    def _put_in_order(self) -> None:
        """By their keys, each once."""
        before = [self._rows] if len(self._rows) else []
        rows = np.concatenate([*before, *self._fresh])
        self._fresh.clear()
        self._rows = rows[first_rows(rows[:, 0])]


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

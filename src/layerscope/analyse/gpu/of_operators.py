"""The time of work on GPUs by the operators that launched it, those around them included.

`gpu_ns` of an operator is the sum of the durations of the kernels, copies and memory sets that it
or an operator in it launched. So it is more than time on a clock where streams overlap, and a name
that calls itself counts twice, as in total_ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.columns import Columns, has_name
from layerscope.analyse.gpu.sweep import Int64s
from layerscope.analyse.stacks.sample_reader import places_of
from layerscope.analyse.stacks.tree import added_up, by_level
from layerscope.model.layers import GPU, OPERATORS

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

_LINKS = ["from_span", "to_span", "kind"]
_OF_WORK = ["span", "dur_ns", "layer"]
_OF_OPERATORS = ["span", "parent", "layer", "kind", "name"]


class _WorkTimes:
    """Time of work by the key of a span, until the span is found. `by_pair`: what was found, by
    name and kind. `found`: how often there was something in a piece.
    """

    def __init__(self, keys: Int64s, times_ns: Int64s) -> None:
        """These keys may be there several times."""
        self.by_pair: dict[tuple[str, str], int] = {}
        self.found = 0
        self._keys, self._times_ns = _summed(keys, times_ns)
        # Of spans around what was found, which are few.
        self._around, self._around_ns = keys[:0], times_ns[:0]

    @property
    def is_waiting(self) -> bool:
        """Whether a span was not found so far."""
        return bool(len(self._around)) or bool(self._times_ns.any())

    def find(self, piece: Columns) -> None:
        """Add up what is of the spans of this piece, and of those around them."""
        keys = piece["span"]
        own_ns = np.zeros((len(keys), 1), np.int64)
        self._give(keys, own_ns[:, 0])
        if not own_ns.any():
            return
        self.found += 1
        up = places_of(keys, piece["parent"]).astype(np.int32)
        whole_ns = added_up(up, own_ns, by_level(up))[:, 0]
        rows = np.flatnonzero(has_name(piece, "layer", OPERATORS) & (whole_ns > 0))
        self._add(piece, whole_ns.take(rows), rows)
        is_elsewhere = (up < 0) & (piece["parent"] >= 0) & (whole_ns > 0)
        around = np.concatenate([self._around, piece["parent"][is_elsewhere]])
        around_ns = np.concatenate([self._around_ns, whole_ns[is_elsewhere]])
        self._around, self._around_ns = _summed(around, around_ns)

    def _give(self, keys: Int64s, own_ns: Int64s) -> None:
        """Add what is of these spans, once."""
        bounds = (int(keys.min()), int(keys.max()) + 1)
        first, behind = np.searchsorted(self._keys, bounds)
        times_ns = self._times_ns[first:behind]
        place = places_of(keys, self._keys[first:behind])
        is_here = place >= 0
        own_ns[place[is_here]] += times_ns[is_here]
        times_ns[is_here] = 0
        place = places_of(keys, self._around)
        is_here = place >= 0
        own_ns[place[is_here]] += self._around_ns[is_here]
        self._around, self._around_ns = self._around[~is_here], self._around_ns[~is_here]

    def _add(self, piece: Columns, times_ns: Int64s, rows: Int64s) -> None:
        """Add up these rows by name and kind."""
        names, kinds = piece["name.names"], piece["kind.names"]
        name = piece["name"].take(rows).astype(np.int64)
        kind = piece["kind"].take(rows)
        pairs, sums = _summed(name * len(kinds) + kind, times_ns)
        for pair, time_ns in zip(pairs.tolist(), sums.tolist(), strict=True):
            at_name, at_kind = divmod(pair, len(kinds))
            key = (names[at_name], kinds[at_kind])
            before_ns = self.by_pair.get(key, 0)
            self.by_pair[key] = before_ns + time_ns


def gpu_times(reader: Reader) -> pa.Table | None:
    """`called`, `called_kind` and `gpu_ns` of each operator; None where none launched anything."""
    links = reader.arrays("links", _LINKS)
    launches = has_name(links, "kind", "operator_gpu")
    if not launches.any():
        return None
    asking, work = links["from_span"][launches], links["to_span"][launches]
    del links, launches
    times = _WorkTimes(asking, _durations(reader, work))
    del asking, work
    before, newest_first = -1, True
    # What lies in a span that ended later is found before it, in one of both directions.
    while times.is_waiting and times.found > before:
        before = times.found
        for piece in reader.pieces("spans", _OF_OPERATORS, newest_first):
            times.find(piece)
        newest_first = not newest_first
    return _as_table(times.by_pair)


def _durations(reader: Reader, work: Int64s) -> Int64s:
    """The duration of each of these spans; 0: it is not known."""
    found = np.zeros(len(work), np.int64)
    order = np.argsort(work, kind="stable")
    keys = work.take(order)
    for piece in reader.pieces("spans", _OF_WORK):
        rows = np.flatnonzero(has_name(piece, "layer", GPU))
        span, dur_ns = piece["span"][rows], piece["dur_ns"][rows]
        first = np.searchsorted(keys, span)
        behind = np.searchsorted(keys, span, side="right")
        counts = behind - first
        shift = np.repeat(first - (np.cumsum(counts) - counts), counts)
        at = shift + np.arange(len(shift))
        found[order.take(at)] = np.repeat(dur_ns, counts)
    return found


def _summed(keys: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
    """Each key once, ascending, and the sum of its values."""
    order = np.argsort(keys, kind="stable")
    ordered = keys.take(order)
    first = np.flatnonzero(np.diff(ordered, prepend=-1) != 0)
    if not len(first):
        return ordered, values
    return ordered.take(first), np.add.reduceat(values.take(order), first)


def _as_table(sums: dict[tuple[str, str], int]) -> pa.Table:
    """The sums by the name and the kind."""
    import pyarrow as pa

    columns = {
        "called": pa.array([name for name, _ in sums], pa.string()),
        "called_kind": pa.array([kind for _, kind in sums], pa.string()),
        "gpu_ns": pa.array(list(sums.values()), pa.int64()),
    }
    return pa.table(columns)

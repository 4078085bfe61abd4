"""Exact sums over all spans of a run, and how their durations are distributed, in memory that its
length leaves alone.

A row is what `model.schema` calls a row of `totals`: process, kind, name, module, and whether it
began in a step.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from layerscope.model.compiled import compiled
from layerscope.model.schema import BIN

_NAME_BITS, _MODULE_BITS, _BIN_BITS = 24, 23, 13  # of a key; log(2**63) / log(BIN) is below 2**13
_BIN_MASK = (1 << _BIN_BITS) - 1
# Pairs of bin and count that may wait to be summed up.
_SETTLE_FROM = 1 << 20
_NOTHING = np.iinfo(np.int64).max
# Of count, total, self, least, most.
_JOINING = (np.add, np.add, np.add, np.minimum, np.maximum)
# Room for the keys of most programs: half of so many.
_PLACES_BITS = 12


def bins_of(dur_ns: np.ndarray) -> np.ndarray:
    """The number of the bin of each duration; 0 ns and 1 ns share bin 0."""
    bins: np.ndarray = np.floor(np.log(np.maximum(dur_ns, 1)) / np.log(BIN) + 1e-9).astype(np.int64)
    return bins


def bin_start_ns(bins: np.ndarray) -> np.ndarray:
    """The shortest duration of each bin, in whole ns."""
    starts: np.ndarray = np.ceil(np.power(BIN, bins) - 1e-6).astype(np.int64)
    return starts


class _Rows(Struct):
    """What is added up of one process: columns by row, and the row of each key."""

    rows: dict[int, int] = field(default_factory=dict)
    sums: np.ndarray = field(
        default_factory=lambda: np.zeros((0, 5), np.int64)
    )  # count, total, self, least, most

    def add(self, key: np.ndarray, dur_ns: np.ndarray, self_ns: np.ndarray) -> None:
        keys, sums = by_key(key, dur_ns, self_ns)
        rows = self._rows_of(keys.tolist())
        known = self.sums[rows]
        self.sums[rows] = _both(known, sums)

    def _rows_of(self, keys: list[int]) -> np.ndarray:
        """The rows of these keys in `sums`, which grows where they are new."""
        rows = []
        for key in keys:
            next_row = len(self.rows)
            rows.append(self.rows.setdefault(key, next_row))
        more = len(self.rows) - len(self.sums)
        if more > 0:
            self.sums = np.concatenate([self.sums, _no_sums(more)])
        return np.array(rows, np.intp)


def _both(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sums of all that these rows count."""
    columns = zip(_JOINING, a.T, b.T, strict=True)
    return np.column_stack([both(of_a, of_b) for both, of_a, of_b in columns])


def _no_sums(rows: int) -> np.ndarray:
    """So many rows of sums of nothing."""
    sums = np.zeros((rows, 5), np.int64)
    sums[:, 3] = _NOTHING
    return sums


def by_key(
    key: np.ndarray, dur_ns: np.ndarray, self_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each key once, in the order in which they are first seen, and its sums: count, total, self,
    least, most.
    """
    library = compiled()
    if library is None:
        return _with_numpy(key, dur_ns, self_ns)
    spans = [np.ascontiguousarray(column) for column in (key, dur_ns, self_ns)]
    bits, found = _PLACES_BITS, -1
    while found < 0:  # there were more keys than places
        places = np.zeros(1 << bits, np.int32)
        keys = np.empty(len(places) // 2, np.int64)
        sums = np.empty((len(keys), 5), np.int64)
        found = library.call("totals", *spans, len(key), places, bits, keys, sums)
        bits += 2
    return keys[:found], sums[:found]


def _with_numpy(
    key: np.ndarray, dur_ns: np.ndarray, self_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    encoded = pa.array(key).dictionary_encode()
    code = encoded.indices.to_numpy()
    length = len(encoded.dictionary)
    sums = _no_sums(length)
    sums[:, 0] = np.bincount(code, minlength=length)
    # Sums of integers below 2**53 are exact as floating-point numbers.
    sums[:, 1] = np.bincount(code, dur_ns, length)
    sums[:, 2] = np.bincount(code, self_ns, length)
    np.minimum.at(sums[:, 3], code, dur_ns)
    np.maximum.at(sums[:, 4], code, dur_ns)
    return encoded.dictionary.to_numpy(), sums


class _Bins(Struct):
    """How many spans fell into each bin: pairs of a number (row and bin) and a count, summed up now
    and then.
    """

    keys: list[np.ndarray] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)
    settled: int = 0  # pairs at the last summing up
    waiting: int = 0

    def add(self, keys: np.ndarray, counts: np.ndarray) -> None:
        self.keys.append(keys)
        self.counts.append(counts)
        self.waiting += len(keys)
        if self.waiting > max(_SETTLE_FROM, self.settled):
            self.settle()

    def settle(self) -> tuple[np.ndarray, np.ndarray]:
        """Every number once, ascending, with its count."""
        none = np.zeros(0, np.int64)
        keys = np.concatenate([none, *self.keys])
        counts = np.concatenate([none, *self.counts])
        found, inverse = np.unique(keys, return_inverse=True)
        summed = np.bincount(inverse, counts, len(found)).astype(np.int64)
        self.keys = [found]
        self.counts = [summed]
        self.settled = len(found)
        self.waiting = 0
        return found, summed


class SpanTotals(Struct):
    """Adds spans up. Every array has one entry for each span."""

    _rows: dict[int, _Rows] = field(default_factory=dict)
    _bins: dict[int, _Bins] = field(default_factory=dict)

    def add(self, process: int, keys: np.ndarray, dur_ns: np.ndarray, self_ns: np.ndarray) -> None:
        """Add finished spans of one process, with the `keys` that `keys_of` gives."""
        if len(keys):
            self._rows.setdefault(process, _Rows()).add(keys, dur_ns, self_ns)

    def add_durations(self, process: int, keys: np.ndarray, dur_ns: np.ndarray) -> None:
        """Put the durations of finished spans of one process, which were added before, into their
        bins.
        """
        if not len(keys):
            return
        # The row's number is smaller than its key, which leaves room for the bin.
        rows = self._rows[process].rows
        encoded = pa.array(keys).dictionary_encode()
        row = np.array([rows[key] for key in encoded.dictionary.to_pylist()], np.int64)[
            encoded.indices.to_numpy()
        ]
        counted = pa.array(row << _BIN_BITS | bins_of(dur_ns)).value_counts()
        self._bins.setdefault(process, _Bins()).add(
            counted.field(0).to_numpy(), counted.field(1).to_numpy()
        )

    def forget_steps(self, process: int) -> None:
        """What was taken for steps of this process is none: all of its spans lie outside."""
        old = self._rows.pop(process, None)
        if old is None:
            return
        new = self._rows[process] = _Rows()
        moved = np.zeros(len(old.rows), np.int64)
        for key, row in old.rows.items():
            outside = key & ~1
            moved[row] = new.rows.setdefault(outside, len(new.rows))
        new.sums = _no_sums(len(new.rows))
        sums, least, most = new.sums[:, :3], new.sums[:, 3], new.sums[:, 4]
        np.add.at(sums, moved, old.sums[:, :3])
        np.minimum.at(least, moved, old.sums[:, 3])
        np.maximum.at(most, moved, old.sums[:, 4])
        bins = self._bins.get(process)
        if bins is not None:
            keys, counts = bins.settle()
            old_row, bin_number = keys >> _BIN_BITS, keys & _BIN_MASK
            fresh = self._bins[process] = _Bins()
            fresh.add(moved[old_row] << _BIN_BITS | bin_number, counts)

    def columns(self) -> dict[str, np.ndarray]:
        """All rows as columns: total, process, kind_code, name_code, module, in_step and the five
        sums.
        """
        processes = sorted(self._rows)
        keys = [
            np.fromiter(self._rows[p].rows, np.int64, len(self._rows[p].rows)) for p in processes
        ]
        sums = np.concatenate(
            [np.zeros((0, 5), np.int64), *(self._rows[process].sums for process in processes)]
        )
        key = np.concatenate([np.zeros(0, np.int64), *keys])
        return {
            "total": np.arange(len(key)),
            "process": np.repeat(np.array(processes, np.int64), [len(one) for one in keys]),
            "kind_code": key >> (_NAME_BITS + _MODULE_BITS + 1),
            "name_code": key >> (_MODULE_BITS + 1) & ((1 << _NAME_BITS) - 1),
            "module": (key >> 1 & ((1 << _MODULE_BITS) - 1)) - 1,
            "in_step": key & 1,
            **{
                name: sums[:, i]
                for i, name in enumerate(("count", "total_ns", "self_ns", "min_ns", "max_ns"))
            },
        }

    def histogram_columns(self) -> dict[str, np.ndarray]:
        """The columns of the table `histograms`."""
        none = np.zeros(0, np.int64)
        total, from_ns, count = [none], [none], [none]
        first = 0
        for process in sorted(self._rows):
            bins = self._bins.get(process)
            if bins is not None:
                keys, counts = bins.settle()
                total.append((keys >> _BIN_BITS) + first)
                from_ns.append(bin_start_ns(keys & _BIN_MASK))
                count.append(counts)
            first += len(self._rows[process].rows)
        return {
            "total": np.concatenate(total),
            "from_ns": np.concatenate(from_ns),
            "count": np.concatenate(count),
        }


def keys_of(
    kind: np.ndarray, name: np.ndarray, module: np.ndarray, in_step: np.ndarray
) -> np.ndarray:
    """One number for each span that says which row of `totals` of its process it belongs to."""
    key = (kind.astype(np.int64) << _NAME_BITS | name) << _MODULE_BITS | (
        module.astype(np.int64) + 1
    )
    numbers: np.ndarray = key << 1 | in_step
    return numbers

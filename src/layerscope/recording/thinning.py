"""Which spans of a long run stay: whole units, each for as many as it stands for.

A unit is a step of a process with what follows it up to the next step; where there are no steps, a
slice of time. Of every few units in a row one stays, chosen by chance with its weight, and takes on
the weight of the others: the sum of weights remains the number of units, of steps and of slices. A
span that outlasts its unit belongs to none: it always stays, and counts once.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.model.distinct import distinct

# Of a process without steps, the spans of one slice; the longer a slice, the fewer operators lie
# across its ends.
SLICE_SPANS = 10_000


class Units(Struct):
    """Units of one process by their start; `step` is its number, -1 for a slice. Times in ns of the
    run.

    Steps may overlap (requests on several threads): what is in no step belongs to the latest one,
    up to `until_ns`.
    """

    step: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    until_ns: np.ndarray
    weight: np.ndarray

    def __len__(self) -> int:
        return len(self.step)

    def taken(self, at: np.ndarray, weight: np.ndarray) -> Units:
        """The units at these positions, with these weights."""
        return Units(
            step=self.step[at],
            start_ns=self.start_ns[at],
            end_ns=self.end_ns[at],
            until_ns=self.until_ns[at],
            weight=weight,
        )

    def joined(self, other: Units) -> Units:
        """These units and those after them."""
        columns = zip(self._columns(), other._columns(), strict=True)
        return Units(*(np.concatenate(pair) for pair in columns))

    def _columns(self) -> tuple[np.ndarray, ...]:
        """The columns in the order in which the constructor takes them."""
        return (
            self.step,
            self.start_ns,
            self.end_ns,
            self.until_ns,
            self.weight,
        )

    def place(self, start_ns: np.ndarray, end_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
        """The unit of each span, -1 for none of these; `step` -1 outside of steps."""
        if not len(self):
            return np.full(len(start_ns), -1, np.intp)
        unit = np.searchsorted(self.start_ns, start_ns, side="right") - 1
        ends = self.until_ns[unit]
        stepped = np.flatnonzero(step >= 0)
        if len(stepped):
            of_step = self._units_of_steps(step[stepped])
            unit[stepped] = of_step
            ends[stepped] = self.end_ns[of_step]
        outlasts = (start_ns >= ends) | (end_ns > ends)
        unit[(unit < 0) | outlasts] = -1
        return unit

    def _units_of_steps(self, step: np.ndarray) -> np.ndarray:
        """The unit of each of these steps, -1 for a step that was dropped."""
        units = np.flatnonzero(self.step >= 0)
        numbers = self.step[units]
        found = np.searchsorted(numbers, step)
        # The last entries are for a step behind all of them.
        numbers = np.append(numbers, np.int32(-1))
        units = np.append(units, -1)
        is_known = numbers[found] == step
        return np.where(is_known, units[found], -1)


def units_of_steps(
    number: np.ndarray,
    start_ns: np.ndarray,
    dur_ns: np.ndarray,
    from_ns: int,
    cut_ns: int,
    last_ns: int,
) -> Units:
    """The units of steps, by start, in a stretch of time [from_ns, cut_ns), whose newest span
    starts at `last_ns`.

    A step that goes on behind `cut_ns` is a unit up to there.
    """
    starts = start_ns.copy()
    starts[:1] = min(from_ns, int(starts[0])) if len(starts) else from_ns
    until = np.append(start_ns[1:], min(cut_ns, last_ns + 1))
    ends = np.minimum(np.maximum(start_ns + dur_ns, until), cut_ns)
    return Units(number.astype(np.int32), starts, ends, until, np.ones(len(starts), np.int64))


def units_of_slices(start_ns: np.ndarray, from_ns: int, cut_ns: int) -> Units:
    """Slices with equally many of the spans that start at these times, in a stretch of time
    [from_ns, cut_ns).
    """
    inner = _slice_starts(start_ns)
    inner = inner[(inner > from_ns) & (inner < cut_ns)]
    starts = np.append(np.int64(from_ns), inner)
    ends = np.append(inner, np.int64(cut_ns))
    return Units(
        step=np.full(len(starts), -1, np.int32),
        start_ns=starts,
        end_ns=ends,
        until_ns=ends,
        weight=np.ones(len(starts), np.int64),
    )


def _slice_starts(start_ns: np.ndarray) -> np.ndarray:
    """Where the slices but the first begin, so that each has equally many of these spans."""
    count = len(start_ns) // SLICE_SPANS
    if count <= 1:
        return np.zeros(0, np.int64)
    rank = (np.arange(1, count) * len(start_ns)) // count
    partitioned = np.partition(start_ns, rank)
    return distinct(partitioned[rank])


def choose(units: Units, factor: int) -> np.ndarray:
    """Of every `factor` units in a row one stays: for how many each stands from now on, 0 where it
    goes.

    Steps stand for steps, and slices for slices.
    """
    weight = np.zeros(len(units), np.int64)
    is_step = units.step >= 0
    for rows in (np.flatnonzero(is_step), np.flatnonzero(~is_step)):
        if len(rows):
            weight[rows] = _chosen(units.start_ns[rows], units.weight[rows], factor)
    return weight


def _chosen(start_ns: np.ndarray, weight: np.ndarray, factor: int) -> np.ndarray:
    """The weight of the one that stays of each group of `factor`, 0 for the others."""
    group = np.arange(len(weight)) // factor
    group_weight = np.bincount(group, weight).astype(np.int64)
    weight_before = np.cumsum(group_weight) - group_weight
    # By chance, and the same in every conversion: by the start of the group.
    chance = _scattered(start_ns[::factor])
    wanted = weight_before + chance % group_weight
    chosen = np.searchsorted(np.cumsum(weight), wanted, side="right")
    stays = np.zeros(len(weight), np.int64)
    stays[chosen] = group_weight
    return stays


def _scattered(values: np.ndarray) -> np.ndarray:
    """Numbers from 0 on that look random, from `values`: the finalizer of splitmix64 (Steele and
    others, 2014).
    """
    x = values.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    scattered: np.ndarray = ((x ^ (x >> np.uint64(31))) >> np.uint64(2)).astype(np.int64)
    return scattered

"""Which spans of a long run stay: whole units, each for as many as it stands for.

A unit is a step of a process with what follows it up to the next step; where there are no steps, a
slice of time. Of every few units in a row one stays, chosen by chance with its weight, and takes on
the weight of the others: the sum of weights remains the number of units, of steps and of slices. A
span that outlasts its unit belongs to none: it always stays, and counts once.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

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
        """The units at these places, with these weights."""
        return Units(self.step[at], self.start_ns[at], self.end_ns[at], self.until_ns[at], weight)

    def joined(self, other: Units) -> Units:
        """These units and those after them."""
        columns = zip(self._columns(), other._columns(), strict=True)
        return Units(*(np.concatenate(pair) for pair in columns))

    def _columns(self) -> tuple[np.ndarray, ...]:
        return self.step, self.start_ns, self.end_ns, self.until_ns, self.weight

    def place(self, start_ns: np.ndarray, end_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
        """The unit of each span, -1 for none of these; `step` -1 outside of steps."""
        if not len(self):
            return np.full(len(start_ns), -1, np.intp)
        at = np.searchsorted(self.start_ns, start_ns, side="right") - 1
        ends = self.until_ns[at]
        stepped, steps = np.flatnonzero(step >= 0), np.flatnonzero(self.step >= 0)
        if len(stepped):
            numbers = np.append(
                self.step[steps], np.int32(-1)
            )  # the last place is for a step that went
            mine = np.searchsorted(numbers[:-1], step[stepped])
            at[stepped] = np.where(numbers[mine] == step[stepped], np.append(steps, -1)[mine], -1)
            ends[stepped] = self.end_ns[at[stepped]]
        outside = (at < 0) | (start_ns >= ends) | (end_ns > ends)
        at[outside] = -1
        return at


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
    count = max(1, len(start_ns) // SLICE_SPANS)
    places = (np.arange(1, count) * len(start_ns)) // count
    inner = (
        np.unique(np.partition(start_ns, places)[places]) if count > 1 else np.zeros(0, np.int64)
    )
    inner = inner[(inner > from_ns) & (inner < cut_ns)]
    starts = np.append(np.int64(from_ns), inner)
    step = np.full(len(starts), -1, np.int32)
    ends = np.append(inner, np.int64(cut_ns))
    return Units(step, starts, ends, ends, np.ones(len(starts), np.int64))


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
    whole = np.bincount(np.arange(len(weight)) // factor, weight).astype(np.int64)
    upto = np.cumsum(weight)
    before = np.cumsum(whole) - whole
    # By chance, and the same in every conversion: by the start of the group.
    chance = _scattered(start_ns[::factor])
    chosen = np.searchsorted(upto, before + chance % whole, side="right")
    stays = np.zeros(len(weight), np.int64)
    stays[chosen] = whole
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

"""What `platform --measure` found out by running it: the figures, and which instructions each
library chose.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import median

import msgspec

# Names of libraries that checks ask for. OpenBLAS and BLIS have that of who brought them too:
# "OpenBLAS of NumPy".
ATEN, ONEDNN, MKL, NUMPY, TORCH, CUDA = "ATen", "oneDNN", "MKL", "NumPy", "PyTorch", "CUDA"

# With fewer rounds than this the spread of the runs stands for theirs.
_FEWEST_ROUNDS = 3


class Library(msgspec.Struct, frozen=True):
    """A library of the program's Python. `chose`: the instruction set or core type that it says it
    uses, in its own word; `width_bits`: of the vectors of that, None where the word does not tell;
    `threads`: of its pool as programs get it; `runtime`: who starts those threads, in its word
    ("OpenMP").
    """

    name: str
    version: str
    chose: str
    width_bits: int | None = None
    threads: int | None = None
    path: str = ""
    runtime: str = ""


class Rate(msgspec.Struct, frozen=True):
    """Matrix products of one data type by one library: the best of `runs`, and the spread of the
    better half.

    `spread` is (its slowest - its fastest) / its fastest, of times, a share. `size`: rows and
    columns of the square matrices; a product counts 2 x size^3 operations. `by`: the kernel that
    did it, in the library's word. `rounds`: the best of each round; those with one thread take
    turns, so that the rounds of two of them can be compared.
    """

    library: str
    dtype: str
    threads: int
    size: int
    gflop_per_s: float
    runs: int
    spread: float
    by: str = ""
    rounds: tuple[float, ...] = ()


class Bandwidth(msgspec.Struct, frozen=True):
    """Copying memory that no cache holds: bytes read and written in a second, each byte copied
    counts twice.
    """

    threads: int
    gbyte_per_s: float
    runs: int
    spread: float


class Tried(msgspec.Struct, frozen=True):
    """A variable that was set for a process of its own, and what a product of `dtype` with one
    thread reached there, and `without_gflop_per_s` in processes in between that did not have it.
    """

    library: str
    variable: str
    value: str
    dtype: str
    gflop_per_s: float
    without_gflop_per_s: float


class Measured(msgspec.Struct, frozen=True):
    """All of it, with when and on what. `problems`: what could not be measured, one sentence each
    with the remedy.

    `variables`: those that were set and hold a library back (CAPS).
    """

    python: str
    taken_utc: str
    seconds: float
    libraries: tuple[Library, ...]
    rates: tuple[Rate, ...]
    bandwidths: tuple[Bandwidth, ...]
    problems: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()
    variables: dict[str, str] = {}


def fastest(measured: Measured, dtype: str, threads: int) -> Rate | None:
    """The highest rate that any library reached with just so many threads; None where that was not
    measured.
    """
    fitting = []
    for rate in measured.rates:
        if rate.dtype == dtype and rate.threads == threads:
            fitting.append(rate)
    return max(fitting, key=lambda rate: rate.gflop_per_s, default=None)


def times_as_fast(one: Rate, other: Rate) -> float | None:
    """How many times as fast as `other` it is; None where that varies by more than it differs from
    1.

    Of rounds next to each other, what most of them say: the middle one, against where the middle
    half of them lies.
    """
    pairs = sorted(
        mine / theirs for mine, theirs in zip(one.rounds, other.rounds, strict=False) if theirs > 0
    )
    if len(pairs) >= _FEWEST_ROUNDS:
        times = median(pairs)
        low, high = pairs[len(pairs) // 4], pairs[-1 - len(pairs) // 4]
    else:
        times = one.gflop_per_s / other.gflop_per_s
        low, high = times / (1 + one.spread), times * (1 + other.spread)
    return times if high - low < abs(times - 1) else None


def peak(measured: Measured, dtype: str, threads: int) -> float | None:
    """The roof of a roofline for `dtype`: GFLOP/s (of int8 operations) that the fastest library
    reached here.

    A practical peak, not the data sheet's. One thread, one for each core and all granted threads
    are measured: in between it lies on the straight line between the two next to it, beyond all
    threads it is that of all. None: nothing measured has this data type.
    """
    counts = {rate.threads for rate in measured.rates if rate.dtype == dtype}
    best = {
        count: found.gflop_per_s for count in counts if (found := fastest(measured, dtype, count))
    }
    return _at(best.items(), threads)


def bandwidth(measured: Measured, threads: int) -> float | None:
    """The slope of a roofline: GB/s of copying with so many threads, in between as `peak`. None:
    not measured.
    """
    return _at(((one.threads, one.gbyte_per_s) for one in measured.bandwidths), threads)


def _at(points: Iterable[tuple[int, float]], threads: int) -> float | None:
    """Where the straight lines between the points are at `threads`; level beyond their ends."""
    ordered = sorted(points)
    if not ordered:
        return None
    for (low, at_low), (high, at_high) in pairwise(ordered):
        if low <= threads <= high:
            rise = at_high - at_low
            return at_low + rise * (threads - low) / (high - low)
    fewest, at_fewest = ordered[0]
    _, at_most = ordered[-1]
    return at_fewest if threads < fewest else at_most

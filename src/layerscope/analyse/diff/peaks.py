"""The peaks of live memory of two recordings: what holds more of it, what less.

Of each recording it is the process and device with the highest peak. Sizes of blocks do not vary as
times do, so a change has no interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.analyse.memory.at_peak import BlocksAtPeak, blocks_at_peak
from layerscope.analyse.result import BYTES, SHARE, Result, ResultColumn, of_rows
from layerscope.model import units

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

ADDED, GONE, LARGER, SMALLER = "added", "gone", "larger", "smaller"
COLUMNS = (
    ResultColumn("what", "string", "", "peak, category or line"),
    ResultColumn("name", "string", "", "its name"),
    ResultColumn("a_bytes", "int64", BYTES, "live at the peak of A"),
    ResultColumn("b_bytes", "int64", BYTES, "live at the peak of B"),
    ResultColumn("change_bytes", "int64", BYTES, "b_bytes - a_bytes", signed=True),
    ResultColumn("change", "float64", SHARE, "change_bytes as a fraction of a_bytes", signed=True),
    ResultColumn("verdict", "string", "", "added, gone, larger or smaller"),
)
SAME = "At the peak of live memory both hold the same."
_MOST_NAMED = 3

Row = tuple[str, str, int, int, int, float | None, str]


class Peaks(Struct):
    """What is live at the peaks of A and B."""

    a: BlocksAtPeak
    b: BlocksAtPeak

    def result(self) -> Result:
        """A row for all that changed: the peak, then categories, then lines, the largest change
        first.
        """
        return of_rows("diff_memory", COLUMNS, list(self._rows()), empty=SAME)

    def sentence(self) -> str:
        """The change of the peak, and of the categories that it comes from."""
        before, size = self.a.size, self.b.size
        if before == size and self.a.bytes == self.b.bytes:
            return f"The peak of live memory is {size} in both."
        parts = []
        for row in _changes("category", self.a.categories, self.b.categories):
            _, name, _, _, change, _, _ = row
            parts.append(f"{name} {_signed(change)}")
        named = ", ".join(parts[:_MOST_NAMED]) or "the same is known of both"
        return f"The peak of live memory was {before} in A and is {size} in B: {named}."

    def _rows(self) -> Iterator[Row]:
        """All that changed, what is of one kind together."""
        a, b = self.a, self.b
        yield from _changes("peak", {"peak": a.bytes}, {"peak": b.bytes})
        yield from _changes("category", a.categories, b.categories)
        yield from _changes("line", a.lines, b.lines)


def peaks_of(a: Reader, b: Reader) -> Peaks | str:
    """The peaks of both, or why they cannot be compared; nothing where neither has allocations."""
    sides = [blocks_at_peak(side) for side in (a, b)]
    first, second = sides
    if first is not None and second is not None:
        return Peaks(first, second)
    if first is None and second is None:
        return ""
    without = "A" if first is None else "B"
    return (
        f"No memory is compared: allocations were not recorded in {without} (run --layers=+memory)."
    )


def _changes(what: str, a: dict[str, int], b: dict[str, int]) -> Iterator[Row]:
    """What changed, the largest change first."""
    found: list[Row] = []
    # Names of both, each once and in their order.
    for name in {**a, **b}:
        before, after = a.get(name, 0), b.get(name, 0)
        change = after - before
        share = change / before if before else None
        verdict = _verdict(before, after)
        if change:
            found.append((what, name, before, after, change, share, verdict))
    yield from sorted(found, key=_by_change)


def _by_change(row: Row) -> tuple[int, str]:
    """The largest change first, then by name."""
    _, name, _, _, change, _, _ = row
    return -abs(change), name


def _verdict(before: int, after: int) -> str:
    if not before:
        return ADDED
    if not after:
        return GONE
    return LARGER if after > before else SMALLER


def _signed(size_bytes: int) -> str:
    size = units.size(abs(size_bytes))
    if size_bytes < 0:
        return f"-{size}"
    return f"+{size}"

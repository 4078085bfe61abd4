"""Counters and marks of memory in foreign files, on the one track of counters that the framework
has. Used by the sources that read memory.
"""

from __future__ import annotations

import numpy as np

from layerscope.sources.imported import ImportedMoments

# Values that a counter keeps at most; of more, in each stretch the lowest and the highest.
MOST_VALUES = 100_000


class MemoryCounters:
    """Collects them. `domain`: what their track is called, as the recorder calls the counters of a
    program by their domain. `names`: the texts of the file by their number, which grow.
    """

    def __init__(self, domain: str, names: dict[str, int]) -> None:
        self._domain = domain
        self._names = names
        self._parts: list[ImportedMoments] = []

    def add(self, name: str, at_ns: np.ndarray, value: np.ndarray, track: int = 0) -> None:
        """Values of a counter at these times; of values that do not change the first one is kept,
        and the last one, so that it is seen how far the counter reaches.
        """
        if not len(at_ns):
            return
        is_kept = np.ones(len(value), np.bool_)
        is_kept[1:-1] = value[1:-1] != value[:-2]
        rows = np.flatnonzero(is_kept)
        rows = rows[_lowest_and_highest(value[rows])]
        self._add(f"{name}\n{self._domain}", at_ns[rows], value[rows], False, track)

    def mark(self, text: str, at_ns: int, track: int = 0) -> None:
        """A mark at a time."""
        text = " ".join(text.split())
        self._add(text, np.array([at_ns], np.int64), np.zeros(1, np.int64), True, track)

    def moments(self) -> ImportedMoments:
        """All of them."""
        if not self._parts:
            return ImportedMoments()
        return ImportedMoments(
            **{
                name: np.concatenate([getattr(part, name) for part in self._parts])
                for name in ("at_ns", "track", "name", "value", "is_mark")
            }
        )

    def _add(
        self, text: str, at_ns: np.ndarray, value: np.ndarray, is_mark: bool, track: int
    ) -> None:
        count = len(at_ns)
        number = self._names.setdefault(text, len(self._names))
        self._parts.append(
            ImportedMoments(
                at_ns=at_ns,
                track=np.full(count, track, np.int32),
                name=np.full(count, number, np.int32),
                value=value,
                is_mark=np.full(count, is_mark, np.bool_),
            )
        )


def _lowest_and_highest(value: np.ndarray) -> np.ndarray:
    """The rows that are kept: all, or of each of many stretches the lowest and the highest."""
    count = len(value)
    if count <= MOST_VALUES:
        return np.arange(count)
    length = -(-count // (MOST_VALUES // 2 - 1))
    whole = count // length * length
    stretches = value[:whole].reshape(-1, length)
    first = np.arange(0, whole, length)
    lowest, highest = stretches.argmin(axis=1), stretches.argmax(axis=1)
    rest = np.arange(whole, count)
    return np.unique(np.concatenate([first + lowest, first + highest, rest, [count - 1]]))

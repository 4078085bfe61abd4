"""Counters and marks of memory in foreign files, all on the one track of counters that the framework
has. Used by the sources that read memory.
"""

from __future__ import annotations

import numpy as np

from layerscope.sources.imported import ImportedMoments

# What the track is called, as the recorder calls the counters of a program by their domain.
DOMAIN = "PyTorch"


class MemoryCounters:
    """Collects them; `names`: the texts of the file by their number, which grow."""

    def __init__(self, names: dict[str, int]) -> None:
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
        self._add(f"{name}\n{DOMAIN}", at_ns[is_kept], value[is_kept], False, track)

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

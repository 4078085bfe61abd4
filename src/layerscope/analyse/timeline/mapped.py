"""Arrays in the files of a folder, mapped into memory: what nobody asks for is not read."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np


class MappedFiles:
    """The arrays that were saved in a folder."""

    def __init__(
        self,
        folder: Path,
    ) -> None:
        self.folder = folder
        self._maps: list[mmap.mmap] = []

    def opened(self, name: str, is_searched: bool = False) -> np.ndarray:
        """One of them. `is_searched`: a few places of it are read at a time, so that what lies
        beside them need not be.
        """
        file = self.folder / f"{name}.npy"
        try:
            found = np.load(file, mmap_mode="r", allow_pickle=False)
        except ValueError:  # a file of nothing cannot be mapped
            return np.asarray(np.load(file, allow_pickle=False))
        if is_searched:
            found._mmap.madvise(mmap.MADV_RANDOM)
        self._maps.append(found._mmap)
        return np.asarray(found)

    def let_go(self) -> None:
        """Give the memory back that holds what was read; it is read again when it is needed."""
        for one in self._maps:
            one.madvise(mmap.MADV_DONTNEED)

"""Tables of symbols and of lines in the user's cache: the half a million symbols of a large
framework are sorted once.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerscope.model import cache
from layerscope.symbols.elf_file import opened

# Of these tables. A change of their rows, or of what goes into them, needs a new number.
_VERSION = 1
_BYTES_MOST = 1 << 28  # of all tables together; that of a large framework has 17 MB
# Smaller tables are made faster than found. A line takes far longer than a symbol.
SYMBOLS_LEAST, LINES_LEAST = 10_000, 500

IsSound = Callable[[NDArray[np.void]], bool]


class Kept:
    """A folder of the cache; None: nothing is kept. What is damaged, or cannot be written, is made
    again.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def rows(
        self, key: str, make: Callable[[], NDArray[np.void]], is_sound: IsSound, least: int
    ) -> NDArray[np.void]:
        """The rows kept under `key`, a file name; else those of `make`, kept if they are `least`.
        `make` may raise.

        `is_sound`: whether rows that come from a file can be used; it gets arrays of any type.
        """
        if self._folder is None:
            return make()
        file = self._folder / f"{key}-{_VERSION}.npy"
        found = _read(file, is_sound)
        if found is None:
            found = make()
            if len(found) >= least:
                with contextlib.suppress(OSError):
                    self._write(file, found)
        return found

    def _write(self, file: Path, rows: NDArray[np.void]) -> None:
        cache.make(file.parent)
        descriptor, draft = tempfile.mkstemp(".tmp", dir=file.parent)
        try:
            with open(descriptor, "wb") as out:
                np.save(out, rows)
            os.replace(draft, file)
        finally:
            Path(draft).unlink(missing_ok=True)
        _remove_oldest(file.parent, file)


def _read(file: Path, is_sound: IsSound) -> NDArray[np.void] | None:
    try:
        with opened(file) as descriptor, open(descriptor, "rb", closefd=False) as content:
            found = np.lib.format.read_array(content, allow_pickle=False)
            os.utime(descriptor)  # it was used just now
    except (OSError, ValueError, EOFError, MemoryError, TypeError, SyntaxError):
        return None
    return found if is_sound(found) else None


def _remove_oldest(folder: Path, but: Path) -> None:
    """Remove what was not used for the longest time until the rest is small enough."""
    found = []
    for file in folder.iterdir():
        with contextlib.suppress(OSError):  # gone meanwhile
            about = file.lstat()
            found.append((about.st_mtime_ns, about.st_size, file))
    total = sum(size for _, size, _ in found)
    for _, size, file in sorted(found, key=lambda one: one[:2]):
        if total <= _BYTES_MOST:
            break
        if file != but:
            with contextlib.suppress(OSError):
                file.unlink()
            total -= size

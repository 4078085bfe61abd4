"""Tables of symbols and of lines in the user's cache: the half a million symbols of a large
framework are sorted once.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.model import cache
from layerscope.symbols.elf_file import opened

# Of these tables. A change of their rows, or of what goes into them, needs a new number.
_VERSION = 1
_BYTES_MOST = 1 << 28  # of all tables together; that of a large framework has 17 MB
# The folder is looked through once, and again when so much has been added.
_TIDY_BYTES = 1 << 24
# Smaller tables are made faster than found. A line takes far longer than a symbol.
SYMBOLS_LEAST, LINES_LEAST = 10_000, 500

IsSound = Callable[[NDArray[np.void]], bool]


class Kept:
    """A folder of the cache; None: nothing is kept. What is damaged, or cannot be written, is made
    again.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._untidy_bytes = _TIDY_BYTES

    def bytes_of(self, key: str) -> bytes | None:
        """What was kept under `key` by `keep_bytes`; None: nothing."""
        if self._folder is None:
            return None
        found = _read(self._file(key), _is_bytes)
        return None if found is None else found.tobytes()

    def keep_bytes(self, key: str, content: bytes) -> None:
        """Keep `content`, if it can be."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._write(self._file(key), np.frombuffer(content, np.uint8))

    def rows(
        self, key: str, make: Callable[[], NDArray[np.void]], is_sound: IsSound, least: int
    ) -> NDArray[np.void]:
        """The rows kept under `key`, a file name; else those of `make`, kept if they are `least`.
        `make` may raise.

        `is_sound`: whether rows that come from a file can be used; it gets arrays of any type.
        """
        if self._folder is None:
            return make()
        file = self._file(key)
        found = _read(file, is_sound)
        if found is None:
            found = make()
            if len(found) >= least:
                with contextlib.suppress(OSError):
                    self._write(file, found)
        return found

    def _file(self, key: str) -> Path:
        """Where the table with this key is."""
        assert self._folder is not None
        return self._folder / f"{key}-{_VERSION}.npy"

    def _write(self, file: Path, rows: NDArray[Any]) -> None:
        folder = file.parent
        cache.make(folder)
        descriptor, draft = tempfile.mkstemp(".tmp", dir=folder)
        try:
            with open(descriptor, "wb") as out:
                np.save(out, rows)
            os.replace(draft, file)
        finally:
            Path(draft).unlink(missing_ok=True)
        self._untidy_bytes += rows.nbytes
        if self._untidy_bytes >= _TIDY_BYTES:
            self._untidy_bytes = 0
            _remove_oldest(folder, file)


def _is_bytes(rows: NDArray[Any]) -> bool:
    return rows.dtype == np.uint8 and rows.ndim == 1


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
    oldest_first = sorted(found, key=lambda one: one[:2])
    for _, size, file in oldest_first:
        if total <= _BYTES_MOST:
            break
        if file != but:
            with contextlib.suppress(OSError):
                file.unlink()
            total -= size

"""Raw files read while they are written, by a reader beside the converter.

When the converter has read a segment, it may put another file in its place, from which spans are
taken out. Whoever reads beside it keeps the segment open that it is in, and so reads all of it.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from layerscope.rawfile import raw_file
from layerscope.sources.raw.process import RawProcess


class KeptSpoolReader(raw_file.SpoolReader):
    """Reads as `SpoolReader` does, and keeps the segment that it reads open until `close`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file: BinaryIO | None = None
        self._segment = Path()

    def opened(self, path: Path) -> AbstractContextManager[BinaryIO]:
        """The file of a segment, which stays open behind the reading."""
        if self._file is None or self._segment != path:
            self.close()
            self._file, self._segment = path.open("rb"), path
        # So that nothing comes out of a buffer that was filled before the file grew.
        self._file.seek(0, os.SEEK_END)
        return nullcontext(self._file)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file = None


def keep_open(process: RawProcess) -> KeptSpoolReader:
    """Let a process of which nothing was read yet be read beside its converter."""
    reader = KeptSpoolReader(process.path)
    process.reader = reader
    return reader

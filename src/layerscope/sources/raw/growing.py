"""Raw files read while they are written, by a reader beside the converter.

When the converter has read a segment, it may put another file in its place, from which spans are
taken out. Whoever reads beside it keeps the segment open that it is in, and so reads all of it.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import numpy as np

from layerscope.rawfile import raw_file
from layerscope.rawfile.layout import RECORD_BYTES
from layerscope.sources.raw.process import RawProcess
from layerscope.sources.raw.thinned_records import kept_rows, spans_among


class KeptSpoolReader(raw_file.SpoolReader):
    """Reads as `SpoolReader` does, and keeps the segment that it reads open until `close`.

    `every`: of so many stretches between readings of the clocks one is read whole, and of the
    others what is read in any case (`thinned_records`), with the spans that have one of the names
    `steps`. `left_out`: how many spans were not read. `whole_ns`: where a stretch began that was
    read whole, and where it ended. Both grow until who takes them empties them.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.every = 1
        self.steps = np.zeros(0, np.uint32)
        self.left_out = 0
        self.whole_ns: list[tuple[int, int]] = []
        self._stretch = 0
        self._began_ns = 0
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

    def unpacked(self, chunk: raw_file.Chunk, flags: int) -> raw_file.Chunk:
        """The same; a reading of the clocks ends a stretch."""
        ends_stretch = chunk.kind == raw_file.POLL
        if ends_stretch:
            self._end_stretch(chunk.payload)
        return super().unpacked(chunk, flags)

    def _end_stretch(self, reading: bytes) -> None:
        _, run_ns = raw_file.READING.unpack_from(reading)
        if self._is_whole:
            stretch = self._began_ns, run_ns
            self.whole_ns.append(stretch)
        self._began_ns = run_ns
        self._stretch += 1

    @property
    def _is_whole(self) -> bool:
        """Whether all is read of the stretch that is read now."""
        return self._stretch % self.every == 0

    def rows(self, chunk: raw_file.Chunk, columns: bytes) -> bytes:
        """The same, or a part of them."""
        if self._is_whole:
            return super().rows(chunk, columns)
        table = np.frombuffer(columns, np.uint8).reshape(RECORD_BYTES, -1)
        kept = table[:, kept_rows(table, self.steps)]
        self.left_out += spans_among(table) - spans_among(kept)
        return kept.T.tobytes()

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

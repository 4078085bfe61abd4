"""One recorded process, read from its raw files while they still grow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.model.clocks import Elsewhere, Identity
from layerscope.rawfile import raw_file
from layerscope.sources.process import SourceProcess
from layerscope.sources.raw.decoder import Decoder

if TYPE_CHECKING:
    from layerscope.sources.raw.late_spans import LateChunks
    from layerscope.sources.raw.late_stream import LateStream
    from layerscope.sources.raw.stock_windows import StockWindows


class RawProcess(SourceProcess):
    """The process whose raw file is at `path`; `shift_ns` puts the clock of its host on the run's.

    `late`: spans that only logs of libraries have; it may be set while nothing is read that began
    after the first of them. `is_held`: nothing more is read for now, because there will be some.
    """

    __slots__ = (
        "_appended",
        "decoder",
        "is_held",
        "late",
        "path",
        "reader",
        "step_mark",
        "windows",
    )

    def __init__(self, path: Path, rank: str = "", shift_ns: int = 0) -> None:
        clock = Elsewhere(shift_ns) if shift_ns else Identity()
        self.decoder = Decoder(shift_ns=shift_ns, clock=clock)
        host, *_ = path.parent.name.rsplit("-", 2)
        super().__init__(self.decoder, host, rank, True)
        self.path = path
        self.reader = raw_file.SpoolReader(path)
        self.late: LateChunks | LateStream | None = None
        self.is_held = False
        self.step_mark = ""
        self.windows: StockWindows | None = None
        self._appended: Iterator[raw_file.Chunk] = iter(())

    @property
    def pid(self) -> int:
        """Its number, by the name of its folder."""
        number = self.path.parent.name.rsplit("-", 2)[-2]
        return int(number) if number.isdecimal() else -1

    def append(self, windows: StockWindows) -> None:
        """Read these windows of a framework's own profiler behind the raw file."""
        self.windows = windows
        self._appended = windows.chunks()

    def twin(self) -> RawProcess:
        """The same process to be read from its beginning, without logs, on the clock of its
        host.
        """
        twin = RawProcess(self.path, self.rank)
        if self.windows is not None:
            twin.append(self.windows)
        return twin

    def pieces(self) -> Iterator[None]:
        """Read on, and stop after each reading of the clocks."""
        if self.is_held:
            return
        # A chain that is dropped leaves what it has not taken from `_appended` to the next one.
        chunks: Iterator[raw_file.Chunk] = chain(self.reader.chunks(), self._appended)
        if self.late is not None:
            chunks = self.late.merged(chunks)
        for chunk in chunks:
            self.decoder.add(chunk)
            if chunk.kind == raw_file.POLL:
                yield

    @property
    def left_bytes(self) -> int:
        """Bytes behind the last complete chunk that was read."""
        return self.reader.left_bytes

    @property
    def is_damaged(self) -> bool:
        """Whether a chunk did not match its checksum."""
        return self.reader.damaged

    def read_files(self) -> list[Path]:
        """The segments that were read to their end and that nobody writes to any more."""
        files = raw_file.segments(self.path)
        if self.decoder.ended and not self.reader.left_bytes:
            return files
        current = self.reader.segment
        return files[:current]

    def is_first(self, file: Path) -> bool:
        """Whether it is the first segment."""
        return file == self.path

    def strip(self, file: Path) -> int:
        """Take the spans out of one of `read_files`; returns how many bytes that frees."""
        files = self.read_files()
        freed = raw_file.strip(file, keeps_sums=file == files[-1])
        if file == raw_file.segments(self.path)[self.reader.segment]:
            self.reader.offset -= freed
        return freed

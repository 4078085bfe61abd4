"""The raw file of one process: sealed chunks, one after the other, written by append.

A chunk is a header and a payload, each with its checksum. A reader stops at the first chunk that is
short or does not match, so a file cut anywhere opens up to the cut.

A long run has several such files, segments, that follow each other. One that is not the last can be
stripped: its spans go, everything else stays, so that the rest can be read as before and it is
known how many went.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from layerscope.rawfile import layout
from layerscope.rawfile.log_files import has_windows

if TYPE_CHECKING:
    import numpy as np

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# magic, kind, flags, key, count, first, length, checksum of the payload, checksum of the header
# before it
_HEADER = struct.Struct("<IHHIIQIII")
_MAGIC = 0x4B43534C  # "LSCK"
_COMPRESSED, _TRANSPOSED = 1, 2
_COLUMNS = _COMPRESSED | _TRANSPOSED
# Records are stored byte column by byte column: the high bytes of a time hardly change from one to
# the next, so zstd makes 4.6 bytes of a record instead of 7.4, in less time (measured on the MNIST
# CNN).
_RECORD_BYTES = layout.RECORD_BYTES
# Below this, zstd's own frame costs more than it saves.
_COMPRESS_FROM_BYTES = 256
# The drainer has no time for more: level 1 takes 40 % longer and saves 1 % of the bytes of records.
_ZSTD_LEVEL = -1

PROCESS, NAMES, RECORDS, POLL, OPEN, COUNTERS, THREADS, LOSS, TOTALS, END, STRIPPED = range(1, 12)
# A moment that somebody outside of the program has marked: `at_ns` and `name`, as JSON.
OUTSIDE = 12
# Of a stripped chunk: the number of its spans, before the records that stay.
_STRIPPED_COUNT = struct.Struct("<Q")
# A reading of the clocks: ticks, ns of the run, and more.
READING = struct.Struct("<qq")
READING_EVERY_NS = 1_000_000_000
# The raw file of the sampler; of those that took its place, stacks.1 and so on.
SAMPLER_FILE = "stacks"
SEGMENT_BYTES, LEAST_SEGMENT_BYTES = 32 << 20, 256 << 10


Payload = bytes | memoryview


class Chunk(Struct, frozen=True):
    """One sealed chunk. `key`: ring or segment; `first`: ordinal of its first record or byte."""

    kind: int
    key: int
    count: int
    first: int
    payload: bytes


class SpoolWriter:
    """Appends chunks to the last segment. A chunk that does not fit on the disk leaves the file as
    it was.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._open(segments(path)[-1])
        self.is_new = not self.size_bytes and self._segment == path
        if self.size_bytes:
            self._cut_torn_tail()

    def _open(self, segment: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._segment = segment
        self._fd = os.open(segment, flags, 0o600)
        status = os.fstat(self._fd)
        self.size_bytes = status.st_size

    def rotate(self) -> None:
        """Go on in a new segment; OSError when there can be none, then the old one goes on."""
        old = self._fd
        number = len(segments(self._path))
        name = f"{self._path.name}-{number:05d}"
        path = self._path.with_name(name)
        self._open(path)
        os.close(old)

    def _cut_torn_tail(self) -> None:
        """A writer before us was killed in the middle of a chunk: what follows would be taken for
        damage.
        """
        reader = SpoolReader(self._segment)
        for _ in reader.chunks():
            pass
        if not reader.damaged:
            self.size_bytes = reader.offset
            os.ftruncate(self._fd, reader.offset)

    def write(
        self, kind: int, payload: Payload, key: int = 0, count: int = 0, first: int = 0
    ) -> None:
        """Append one chunk; OSError when the disk does not take it (the file is then unchanged).

        A memoryview has records that are there byte column by byte column.
        """
        if isinstance(payload, memoryview):
            compressed = Chunk(kind, key, count, first, _compressed(payload))
            self._append(_with_head(compressed, _COLUMNS))
        else:
            self._append(_sealed(Chunk(kind, key, count, first, payload)))

    def _append(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(28, "the disk took only part of a chunk")
        except OSError:
            os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes += written

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _sealed(chunk: Chunk) -> bytes:
    """The bytes of a chunk in the file."""
    if len(chunk.payload) < _COMPRESS_FROM_BYTES:
        return _with_head(chunk, 0)
    is_table = chunk.kind == RECORDS
    payload = _transposed(chunk.payload, -1, _RECORD_BYTES) if is_table else chunk.payload
    flags = _COLUMNS if is_table else _COMPRESSED
    return _with_head(replace(chunk, payload=_compressed(payload)), flags)


def _compressed(payload: Payload) -> bytes:
    compressed: bytes = zstd.compress(payload, level=_ZSTD_LEVEL)
    return struct.pack("<I", len(payload)) + compressed


def _with_head(chunk: Chunk, flags: int) -> bytes:
    """The bytes of a chunk whose payload is as it is in the file."""
    payload = chunk.payload
    checksum = zlib.crc32(payload)
    about = (_MAGIC, chunk.kind, flags, chunk.key, chunk.count, chunk.first, len(payload), checksum)
    head = _HEADER.pack(*about, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + payload


# NumPy is imported by what handles records: the drainer of a program without any starts sooner.


def _transposed(payload: bytes, rows: int, columns: int) -> bytes:
    """The same bytes, as a table of so many rows and columns, column by column."""
    import numpy as np

    return np.frombuffer(payload, np.uint8).reshape(rows, columns).T.tobytes()


def _records(payload: bytes, offset: int = 0) -> np.ndarray:
    import numpy as np

    from layerscope.rawfile import dtypes

    return np.frombuffer(payload, dtypes.RECORD, offset=offset)


def stripped(records: np.ndarray) -> bytes:
    """The payload of a stripped chunk: of `records` the number of spans, and all that are none, as
    they are; allocations and releases go too.
    """
    kind = records["kind"]
    special = kind >= layout.FIRST_SPECIAL
    is_kept = (kind >= layout.COUNTER) & (kind != layout.EXTRA)
    stays = records[is_kept]
    spans = len(records) - int(special.sum())
    head = _STRIPPED_COUNT.pack(spans)
    payload: bytes = head + stays.tobytes()
    return payload


def stripped_rows(rows: bytes) -> bytes:
    """The same of records as a ring has them."""
    return stripped(_records(rows))


def of_stripped(payload: bytes) -> tuple[int, np.ndarray]:
    """Of a stripped chunk: how many spans it has no more, and the records that stay."""
    (stripped,) = _STRIPPED_COUNT.unpack_from(payload)
    return stripped, _records(payload, _STRIPPED_COUNT.size)


def strip(segment: Path, keeps_sums: bool = True) -> int:
    """Take the spans out of a segment that nobody writes to any more; returns how many bytes that
    frees.

    Its exact sums may go when those of a later segment, which count what was before, are there.
    """
    before = segment.stat().st_size
    temporary = segment.with_name(f"stripped-{segment.name}.tmp")
    reader = SpoolReader(segment)
    try:
        with temporary.open("wb") as file:
            for chunk in _without_spans(reader.of_segment(segment), keeps_sums):
                file.write(_sealed(chunk))
        is_whole = not reader.damaged and reader.offset == before == segment.stat().st_size
        if is_whole and temporary.stat().st_size < before:
            os.replace(temporary, segment)
    finally:
        temporary.unlink(missing_ok=True)
    return before - segment.stat().st_size


def _without_spans(chunks: Iterator[Chunk], keeps_sums: bool) -> Iterator[Chunk]:
    """What stays: fewer readings of the clock, which few moments need now, and the counters in one
    chunk.
    """
    counted: list[bytes] = []
    last, next_ns = None, 0
    for chunk in chunks:
        if chunk.kind == COUNTERS:
            counted.append(chunk.payload)
        elif chunk.kind == POLL:
            _, run_ns = READING.unpack_from(chunk.payload)
            last = chunk
            if run_ns >= next_ns:
                last, next_ns = None, run_ns + READING_EVERY_NS
                yield chunk
        elif chunk.kind == RECORDS:
            payload = stripped(_records(chunk.payload))
            yield Chunk(STRIPPED, chunk.key, chunk.count, chunk.first, payload)
        elif chunk.kind != TOTALS or keeps_sums:
            yield chunk
    if last is not None:
        yield last
    if counted:
        yield Chunk(COUNTERS, 0, 0, 0, b"".join(counted))


def segments(path: Path) -> list[Path]:
    """The files of the raw file at `path`, in their order; the first one is called like it."""
    pattern = f"{path.name}-[0-9]*"
    found = path.parent.glob(pattern)
    others = sorted(found)
    return [path, *others]


def size_bytes(path: Path) -> int:
    """What the raw file at `path` takes, all its segments."""
    total = 0
    for segment in segments(path):
        with suppress(OSError):
            total += segment.stat().st_size
    return total


def raw_bytes(raw: Path) -> int:
    """What all raw files below `raw` take, those of stacks included."""
    total = 0
    for path in spools(raw):
        total += size_bytes(path)
    for pattern in (f"{SAMPLER_FILE}*", f"*/raw/{SAMPLER_FILE}*"):
        for path in raw.glob(pattern):
            with suppress(OSError):
                total += path.stat().st_size
    return total


def most_bytes(options: dict[str, Any]) -> float:
    """What a recording made with these options may take on disk."""
    if options.get(FULL):
        return float("inf")
    limit = options.get(MAX_SIZE, MAX_SIZE_BYTES)
    return float(limit)


def segment_bytes(options: dict[str, Any], processes: int = 1) -> float:
    """When a segment is full, in a recording of so many processes made with these options: many fit
    into it.
    """
    most = most_bytes(options) / 32 / max(processes, 1)
    return max(LEAST_SEGMENT_BYTES, min(SEGMENT_BYTES, most))


def stacks_bytes(options: dict[str, Any]) -> int:
    """What the raw files of stacks may take in a recording made with these options; 0: as much as
    there is.
    """
    return 0 if options.get(FULL) else round(STACKS_SHARE * most_bytes(options))


def spools(raw: Path) -> list[Path]:
    """The raw files below `raw`: the raw folder of a recording, or the folder with the recordings
    of several ranks.
    """
    return sorted([*raw.glob("*/spool"), *raw.glob("*/raw/*/spool")])


def has_raw_files(raw: Path) -> bool:
    """Whether there is anything below `raw` that tables can be made of."""
    return bool(spools(raw)) or has_windows(raw)


# In the file of options (`json_files.Options`).
MAX_SIZE, FULL = "max_size", "full"
# Some spans are known only after the program: nothing is converted before.
LATE = "late"
MAX_SIZE_BYTES, LEAST_SIZE_BYTES = 2_000_000_000, 4_000_000
# A sample takes 56 bytes there, and 10 in the tables.
STACKS_SHARE = 0.2


class SpoolReader:
    """Reads the chunks of a raw file that may still grow, from where the last reading stopped.

    `damaged`: a chunk did not match; what follows it in its segment is lost. `segment`: the number
    of the one that is being read, from 0.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.segment = 0
        self.damaged = False

    def chunks(self, only: Container[int] = range(1 << 16)) -> Iterator[Chunk]:
        """Every complete chunk of the kinds `only` from here on."""
        while True:
            # Looked at before reading: what is in a segment that has a next one will not grow.
            files = segments(self.path)
            yield from self.of_segment(files[self.segment], only)
            if self.segment + 1 >= len(files):
                return
            self.damaged |= files[self.segment].stat().st_size > self.offset
            self.segment, self.offset = self.segment + 1, 0

    def of_segment(self, path: Path, only: Container[int] = range(1 << 16)) -> Iterator[Chunk]:
        """Every complete chunk of one segment from `offset` on; none of one that is not there."""
        if not path.exists():
            return
        with self.opened(path) as file:
            file.seek(self.offset)
            while True:
                head = file.read(_HEADER.size)
                if len(head) < _HEADER.size:
                    return
                magic, kind, flags, key, count, first, length, checksum, own = _HEADER.unpack(head)
                if magic != _MAGIC or own != zlib.crc32(head[:-4]):
                    self.damaged = True
                    return
                payload = file.read(length)
                if len(payload) < length:
                    return
                if zlib.crc32(payload) != checksum:
                    self.damaged = True
                    return
                self.offset += _HEADER.size + length
                if kind in only:
                    packed = Chunk(kind, key, count, first, payload)
                    yield self.unpacked(packed, flags)

    def unpacked(self, chunk: Chunk, flags: int) -> Chunk:
        """The chunk whose payload in the file is that of `chunk`."""
        payload = chunk.payload
        if flags & _COMPRESSED:
            payload = zstd.decompress(payload[4:])  # before it: its length
        if flags & _TRANSPOSED:
            payload = self.rows(chunk, payload)
        return Chunk(chunk.kind, chunk.key, chunk.count, chunk.first, payload)

    def rows(self, chunk: Chunk, columns: bytes) -> bytes:
        """The records of `chunk` of which these are the bytes, column by column."""
        return _transposed(columns, _RECORD_BYTES, -1)

    def opened(self, path: Path) -> AbstractContextManager[BinaryIO]:
        """The file of a segment, open for one reading."""
        return path.open("rb")

    @property
    def left_bytes(self) -> int:
        """Bytes behind the last complete chunk that was read: nothing in a whole file, the torn
        part of a cut one.
        """
        total = 0
        for file in segments(self.path)[self.segment :]:
            if file.exists():
                total += file.stat().st_size
        return total - self.offset

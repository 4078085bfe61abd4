"""The raw file of one process: sealed chunks, one after the other, written by append.

A chunk is a header and a payload, each with its checksum. A reader stops at the first chunk that is
short or does not match, so a file cut anywhere opens up to the cut.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from layerscope.collect import layout

# magic, kind, flags, key, count, first, length, checksum of the payload, checksum of the header before it
_HEADER = struct.Struct("<IHHIIQIII")
_MAGIC = 0x4B43534C  # "LSCK"
_COMPRESSED, _TRANSPOSED = 1, 2
# Records are stored byte column by byte column: the high bytes of a time hardly change from one to the next, so
# zstd makes 4.6 bytes of a record instead of 7.4, in less time (measured on the MNIST CNN).
_RECORD_BYTES = layout.RECORD.itemsize
# Below this, zstd's own frame costs more than it saves.
_COMPRESS_FROM_BYTES = 256

PROCESS, NAMES, RECORDS, POLL, OPEN, COUNTERS, THREADS, LOSS, TOTALS, END = range(1, 11)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One sealed chunk. `key`: ring or segment; `first`: ordinal of its first record or byte."""

    kind: int
    key: int
    count: int
    first: int
    payload: bytes


class SpoolWriter:
    """Appends chunks to a file. A chunk that does not fit on the disk leaves the file as it was."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size_bytes = os.fstat(self._fd).st_size
        if self.size_bytes:
            self._cut_torn_tail(path)

    def _cut_torn_tail(self, path: Path) -> None:
        """A writer before us was killed in the middle of a chunk: what follows would be taken for damage."""
        reader = SpoolReader(path)
        for _ in reader.chunks():
            pass
        if not reader.damaged:
            self.size_bytes = reader.offset
            os.ftruncate(self._fd, reader.offset)

    def write(self, kind: int, payload: bytes, key: int = 0, count: int = 0, first: int = 0) -> None:
        """Append one chunk; OSError when the disk does not take it (the file is then unchanged)."""
        plain_length = len(payload)
        flags = 0
        if plain_length >= _COMPRESS_FROM_BYTES:
            flags = _COMPRESSED
            if kind == RECORDS:
                payload = np.frombuffer(payload, np.uint8).reshape(-1, _RECORD_BYTES).T.tobytes()
                flags |= _TRANSPOSED
            payload = struct.pack("<I", plain_length) + pa.compress(payload, codec="zstd", asbytes=True)
        head = _HEADER.pack(_MAGIC, kind, flags, key, count, first, len(payload), zlib.crc32(payload), 0)
        head = head[:-4] + struct.pack("<I", zlib.crc32(head[:-4]))
        self._append(head + payload)

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


def spools(raw: Path) -> list[Path]:
    """The raw files below `raw`: the raw folder of a recording, or the folder with the recordings of several ranks."""
    return sorted([*raw.glob("*/spool"), *raw.glob("*/raw/*/spool")])


# Beside the raw files: what the user asked for and every conversion must know.
OPTIONS = "options.json"


class SpoolReader:
    """Reads the chunks of a file that may still grow, from where the last reading stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.damaged = False

    def chunks(self, only: Container[int] = range(1 << 16)) -> Iterator[Chunk]:
        """Every complete chunk of the kinds `only` from here on. Stops at a short one, or a wrong one (`damaged`)."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while not self.damaged:
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
                if kind not in only:
                    continue
                if flags & _COMPRESSED:
                    (plain_length,) = struct.unpack_from("<I", payload)
                    payload = pa.decompress(payload[4:], plain_length, codec="zstd", asbytes=True)
                if flags & _TRANSPOSED:
                    payload = np.frombuffer(payload, np.uint8).reshape(_RECORD_BYTES, -1).T.tobytes()
                yield Chunk(kind, key, count, first, payload)

    @property
    def left_bytes(self) -> int:
        """Bytes behind the last complete chunk: nothing in a whole file, the torn part of a cut one."""
        return self.path.stat().st_size - self.offset

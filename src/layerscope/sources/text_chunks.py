"""Text in parts of whole lines: as it is, packed with gzip, or in UTF-16 as some editors write
it.
"""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from layerscope.model.errors import ReadError

CHUNK_BYTES = 1 << 21
# A line, or a sample, that does not end is cut here.
_MOST_BYTES = 1 << 26
# So much of a line is looked at for what a text is.
_LOOKED_AT = 1 << 12
_GZIP = b"\x1f\x8b"
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def chunks(path: Path, behind: bytes = b"\n") -> Iterator[tuple[bytes, int]]:
    """Parts of the text `path`, each ending with `behind` where there is one, else with a line; and
    where they begin.

    Ends of lines are one character, and the text is UTF-8. What is packed may be cut or damaged: it
    ends there. ReadError when the file cannot be read.
    """
    rest, position = b"", 0
    for fresh in _converted(_pieces(path)):
        content = rest + fresh
        end = content.rfind(behind) + len(behind) if behind in content else 0
        if not end and (b"\n\t" not in content or len(content) >= _MOST_BYTES):
            # What belongs to the last line may still come.
            end = content.rfind(b"\n", 0, max(content.rfind(b"\n"), 0)) + 1
        if end < 1 and len(content) >= _MOST_BYTES:
            end = len(content)
        if end >= 1:
            yield content[:end], position
            position += end
            content = content[end:]
        rest = content
    if rest:
        yield rest, position


def parts(path: Path) -> Iterator[bytes]:
    """The text `path` in parts that end anywhere; otherwise as `chunks`."""
    return _converted(_pieces(path))


def raw_parts(path: Path) -> Iterator[bytes]:
    """The file `path` in parts that end anywhere, unpacked; ends of lines stay as they are. Only
    UTF-16 becomes UTF-8.
    """
    found = _pieces(path)
    first = next(found, b"")
    whole = itertools.chain([first], found)
    if first[:2] in _MARKS:
        return _converted(whole)
    return whole


def with_short_lines(head: bytes) -> bytes:
    """The beginning of a text without the ends of very long lines, and with no two empty ones
    behind each other: what looks for patterns in it would need hours.
    """
    lines = head.split(b"\n")
    before = [b"", *lines]
    pairs = zip(lines, before, strict=False)
    return b"\n".join(line[:_LOOKED_AT] for line, above in pairs if line or above)


def unpacked(head: bytes) -> bytes:
    """The beginning of a text as UTF-8."""
    return b"".join(_converted(iter([head])))


def lines_of(octets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each line begins and ends."""
    newline = np.flatnonzero(octets == ord("\n"))
    stop = (
        newline
        if len(newline) and newline[-1] == len(octets) - 1
        else np.append(newline, len(octets))
    )
    return np.append(0, stop[:-1] + 1), stop


def taken(chunk: bytes | np.ndarray, start: np.ndarray, stop: np.ndarray) -> pa.Array:
    """What stands between these places, which ascend."""
    if not len(start):
        return pa.array([], pa.binary())
    bounds = np.column_stack([start, stop]).astype(np.int32).ravel()
    count = len(bounds) - 1
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(chunk)]
    all_ = pa.BinaryArray.from_buffers(pa.binary(), count, buffers)
    # Every second element is what lies between two texts.
    places = pa.array(np.arange(0, count, 2))
    return all_.take(places)


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as plain:
            is_packed = plain.read(2) == _GZIP
        with gzip.open(path, "rb") if is_packed else path.open("rb") as file:
            yield from _read(file)
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}") from error


def _read(file: gzip.GzipFile | io.BufferedReader) -> Iterator[bytes]:
    pieces, length = [], 0
    while True:
        try:
            piece = file.read1(CHUNK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            piece = b""
        pieces.append(piece)
        length += len(piece)
        if length >= CHUNK_BYTES or not piece:
            yield b"".join(pieces)
            pieces, length = [], 0
        if not piece:
            return


def _converted(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same text as UTF-8, with one character at the end of each line."""
    decoder, is_first, rest = None, True, b""
    for piece in pieces:
        content = piece
        if is_first and piece:
            is_first = False
            name = _MARKS.get(content[:2])
            decoder = codecs.getincrementaldecoder(name)("replace") if name else None
            content = content[2:] if name else content.removeprefix(codecs.BOM_UTF8)
        if decoder:
            content = decoder.decode(content).encode()
        content = rest + content
        rest = content[-1:] if content.endswith(b"\r") and piece else b""
        yield content[: len(content) - len(rest)].replace(b"\r\n", b"\n")

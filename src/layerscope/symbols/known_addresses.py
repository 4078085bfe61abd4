"""What was found out about addresses of one file, kept in the user's cache: a recording of the same
program asks for the same ones, and neither symbols nor debugging information are opened again.

A file of the cache has a header, a row of `ROW` for each address, one of `INLINED` for each inlined
function, and the texts that these number.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols.kept import Kept

# The first text is empty: of what is not known. `line`: -1 where it is not known. `inlined`: the
# innermost of the functions that are inlined there, and in a row of these the one around it,
# counted from 1; 0: none.
_FRAME = [("name", "<u4"), ("short", "<u4"), ("file", "<u4"), ("line", "<i4"), ("inlined", "<u4")]
ROW = np.dtype([("address", "<u8"), *_FRAME])
INLINED = np.dtype(_FRAME)
# Magic, checksum of all that follows, rows of both kinds, the texts about files beside.
_HEADER = struct.Struct("<8sIIII")
_COUNTS = struct.Struct("<III")
# A change of how names are made, such as of `short_names`, needs another number.
_MAGIC = b"LSNAMES3"
_ADDRESSES_MOST = 1 << 18


class InlinedFrame(NamedTuple):
    """An inlined function: `name`, `short`, `file` and `line` as in `Named`."""

    name: str
    short: str
    file: str | None
    line: int


# By row of what was asked for its frames, from the outside in.
InlinedFrames = Mapping[int, tuple[InlinedFrame, ...]]


class Named(NamedTuple):
    """What is known of addresses, a row for each that was asked for.

    `name`: demangled, "" where nothing is known; `short`: the same for a flame graph. `file`: the
    source file, None where it is not known. `line`: -1 where it is not known. `inlined`: by row the
    functions that are inlined there.
    """

    name: list[str]
    short: list[str]
    file: list[str | None]
    line: NDArray[np.int32]
    inlined: InlinedFrames = MappingProxyType({})


class KnownAddresses:
    """The addresses of one file, kept under `key`.

    What is known holds as long as `beside` are what they were: the files that may have its
    debugging information.
    """

    def __init__(self, kept: Kept, key: str) -> None:
        self._kept = kept
        self._key = f"{key}-names"
        self._rows = np.zeros(0, ROW)
        self._inlined = np.zeros(0, INLINED)
        self._texts = [""]
        self._beside: list[str] = []
        self._read()

    def rows_of(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each address; -1: nothing is known of it."""
        known = self._rows["address"]
        row = np.searchsorted(known, addresses).astype(np.int64)
        is_known = np.append(known, np.uint64(0))[row] == addresses
        is_known &= row < len(known)
        return np.where(is_known, row, -1)

    def named(self, rows: NDArray[np.int64]) -> Named:
        """What is known of rows, none of them -1."""
        mine = self._rows[rows]
        texts = self._texts
        inlined = mine["inlined"].tolist()
        chains = {}
        for row, number in enumerate(inlined):
            if number:
                chains[row] = self._chain(number)
        names = [texts[number] for number in mine["name"].tolist()]
        return Named(
            names,
            [texts[number] for number in mine["short"].tolist()],
            [texts[number] or None for number in mine["file"].tolist()],
            mine["line"],
            chains,
        )

    def _chain(self, number: int) -> tuple[InlinedFrame, ...]:
        """The inlined functions up to one of them, from the outside in."""
        found: list[InlinedFrame] = []
        texts = self._texts
        while number:
            name, short, file, line, number = self._inlined[number - 1].tolist()
            frame = InlinedFrame(texts[name], texts[short], texts[file] or None, line)
            found.append(frame)
        return tuple(reversed(found))

    def learn(
        self, addresses: NDArray[np.uint64], found: Named, beside: Sequence[Path] = ()
    ) -> None:
        """Keep what was found out about addresses of which nothing was known."""
        if not len(addresses):
            return
        if len(self._rows) + len(addresses) > _ADDRESSES_MOST:
            self._forget()
            addresses = addresses[:_ADDRESSES_MOST]
        numbers = dict(zip(self._texts, count(), strict=False))
        rows = np.zeros(len(addresses), ROW)
        rows["address"], rows["line"] = addresses, found.line[: len(rows)]
        for column, texts in (("name", found.name), ("short", found.short), ("file", found.file)):
            rows[column] = [
                numbers.setdefault(text or "", len(numbers)) for text in texts[: len(rows)]
            ]
        rows["inlined"] = self._numbered(found.inlined, numbers, len(rows))
        self._texts = list(numbers)
        rows = np.concatenate([self._rows, rows])
        self._rows = rows[np.argsort(rows["address"], kind="stable")]
        self._beside = [part for path in beside for part in (str(path), _state_of(str(path)))]
        self._write()

    def _numbered(
        self, inlined: InlinedFrames, texts: dict[str, int], count_: int
    ) -> NDArray[np.uint32]:
        """By row the number of its innermost inlined function; new ones are added."""
        rows = map(tuple, self._inlined.tolist())
        known = dict(zip(rows, count(1), strict=False))
        found = np.zeros(count_, np.uint32)
        for row, chain in inlined.items():
            number = 0
            for frame in chain if row < count_ else ():
                name, short, file = (
                    texts.setdefault(text or "", len(texts))
                    for text in (frame.name, frame.short, frame.file)
                )
                key = (name, short, file, frame.line, number)
                number = known.setdefault(key, len(known) + 1)
            if row < count_:
                found[row] = number
        self._inlined = np.array(list(known), INLINED)
        return found

    def _forget(self) -> None:
        self._rows = np.zeros(0, ROW)
        self._inlined = np.zeros(0, INLINED)
        self._texts = [""]
        self._beside = []

    def _write(self) -> None:
        """Keep what is known."""
        texts = "\0".join([*self._beside, *self._texts])
        packed = texts.encode("utf-8", "surrogateescape")
        content = b"".join([self._rows.tobytes(), self._inlined.tobytes(), packed])
        lengths = len(self._rows), len(self._inlined), len(self._beside)
        counted = zlib.crc32(_COUNTS.pack(*lengths))
        checksum = zlib.crc32(content, counted)
        header = _HEADER.pack(_MAGIC, checksum, *lengths)
        self._kept.keep_bytes(self._key, header + content)

    def _read(self) -> None:
        content = self._kept.bytes_of(self._key)
        if content is None or len(content) < _HEADER.size:
            return
        magic, checksum, rows, inlined, beside = _HEADER.unpack_from(content)
        begin = _HEADER.size + rows * ROW.itemsize
        end = begin + inlined * INLINED.itemsize
        counted = zlib.crc32(_COUNTS.pack(rows, inlined, beside))
        if (
            magic != _MAGIC
            or end > len(content)
            or zlib.crc32(memoryview(content)[_HEADER.size :], counted) != checksum
        ):
            return
        texts = content[end:].decode("utf-8", "surrogateescape").split("\0")
        files, states = texts[:beside:2], texts[1:beside:2]
        if all(_state_of(file) == state for file, state in zip(files, states, strict=True)):
            self._rows = np.frombuffer(content, ROW, rows, _HEADER.size)
            self._inlined = np.frombuffer(content, INLINED, inlined, begin)
            self._beside, self._texts = texts[:beside], texts[beside:]


def _state_of(path: str) -> str:
    """What changes when a file comes, goes or is written anew."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}"

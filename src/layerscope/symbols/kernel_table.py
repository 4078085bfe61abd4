"""Functions of the running kernel, by /proc/kallsyms: names of addresses that a sample has from
this boot.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols.kept import Kept

KALLSYMS = Path("/proc/kallsyms")
# Where a symbol starts, and where its name is, in bytes of the list.
ROW = np.dtype([("start", "<u8"), ("name", "<u4"), ("bytes", "<u4"), ("is_code", "u1")])
_LEAST = 10_000  # a list of fewer is read as soon as found
# ffffffff81000000 T name, and of a module a tab and [module].
_DIGITS = 16
_NAME = _DIGITS + 3
_CODE = np.frombuffer(b"tTwW", np.uint8)
_VALUES = np.full(256, 255, np.uint8)
_VALUES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_PIECE_BYTES, _PIECES_MOST = 1 << 20, 256  # it has some megabytes


class KernelTable:
    """The table as it is now. `hidden`: the kernel tells no addresses to this user, so nothing is
    found.

    `cache` keeps it under `boot`: what is neither in a module nor in a program for BPF stays where
    it is until the kernel starts anew. The list is read again for all else.
    """

    def __init__(self, path: Path | None = None, cache: Kept | None = None, boot: str = "") -> None:
        self._path = path or KALLSYMS
        self._rows, self._names, self._is_current = np.zeros(0, ROW), b"", False
        if cache is not None and boot:
            self._from_cache(cache, f"kernel-{boot}")
        else:
            self._read()

    @property
    def hidden(self) -> bool:
        """Whether there are no addresses in it."""
        return not self._rows["start"].any()

    def names(self, addresses: NDArray[np.uint64]) -> list[str]:
        """The function each address lies in, of a module as `name [module]`; "" where none is
        known.
        """
        found = self._found(addresses)
        if self._is_current or all(name and not name.endswith("]") for name in found):
            return found
        self._read()
        return self._found(addresses)

    def _from_cache(self, cache: Kept, key: str) -> None:
        self._rows = cache.rows(key, self._read, _is_sound, _LEAST)
        if self._is_current:
            if len(self._rows) >= _LEAST and not self.hidden:
                cache.keep_bytes(f"{key}-names", self._names)
            return
        self._names = cache.bytes_of(f"{key}-names") or b""
        are_cut = len(self._names) < _names_bytes(self._rows)
        if are_cut or self.hidden:
            self._read()

    def _read(self) -> NDArray[np.void]:
        """Read the list of the kernel; its rows by start."""
        self._names, self._is_current = _content(self._path), True
        starts, begin, end, is_code = _lines(self._names)
        # The list has a symbol for each name; the first of one address is as good as any.
        order = np.argsort(starts, kind="stable")
        self._rows = np.zeros(len(order), ROW)
        columns = {"start": starts, "name": begin, "bytes": end - begin, "is_code": is_code}
        for name, values in columns.items():
            self._rows[name] = values[order]
        return self._rows

    def _found(self, addresses: NDArray[np.uint64]) -> list[str]:
        if self.hidden:
            return [""] * len(addresses)
        starts = self._rows["start"]
        last = np.searchsorted(starts, addresses, "right")
        known = last > 0
        at_or_before = np.maximum(last - 1, 0)
        first = np.searchsorted(starts, starts[at_or_before], "left")
        return [
            self._best(one, end) if is_known else ""
            for one, end, is_known in zip(first, last, known, strict=True)
        ]

    def _best(self, first: int, end: int) -> str:
        rows = self._rows[first:end]
        code = rows[rows["is_code"] != 0]
        if not len(code):
            # Data have no name here, and end the function before them.
            return ""
        begin = int(code["name"][0])
        text = self._names[begin : begin + int(code["bytes"][0])]
        words = text.split()[:2]
        return b" ".join(words).decode("utf-8", "replace")


def _is_sound(rows: NDArray[Any]) -> bool:
    """Whether these are rows of a table that was kept."""
    if rows.dtype != ROW or rows.ndim != 1 or not len(rows):
        return False
    starts = rows["start"]
    return bool((starts[1:] >= starts[:-1]).all())


def _names_bytes(rows: NDArray[np.void]) -> int:
    """What these rows need of the names."""
    return int((rows["name"].astype(np.int64) + rows["bytes"]).max(initial=0))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # In pieces: to read all at once needs memory for as much as it may be, not for as much
            # as it is.
            pieces = islice(iter(partial(file.read, _PIECE_BYTES), b""), _PIECES_MOST)
            return b"".join(pieces)
    except OSError:
        return b""


def _lines(
    text: bytes,
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Start of every symbol, where its name is in the text, from and to, and whether it is code."""
    octets = np.frombuffer(text, np.uint8)
    newline = np.flatnonzero(octets == ord("\n"))
    begin = np.append(0, newline + 1)
    end = np.append(newline, len(octets))
    has_name = end - begin > _NAME
    begin, end = begin[has_name], end[has_name]
    digits_of_line = begin[:, None] + np.arange(_DIGITS)
    digits = _VALUES[octets[digits_of_line]]
    has_number = (digits < 16).all(axis=1)
    has_blanks = _is_blank(octets, begin + _DIGITS) & _is_blank(octets, begin + _NAME - 1)
    sound = has_number & has_blanks
    begin, end, digits = begin[sound], end[sound], digits[sound]
    starts = _numbers(digits)
    kinds = octets[begin + _DIGITS + 1]
    is_code = np.isin(kinds, _CODE)
    return starts, begin + _NAME, end, is_code


def _is_blank(octets: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether there is a blank at each of these places."""
    found = octets[places]
    blank: NDArray[np.bool_] = found == ord(" ")
    return blank


def _numbers(digits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Of rows of 16 hexadecimal digits."""
    high, low = digits[:, ::2], digits[:, 1::2]
    octets = np.ascontiguousarray(high << 4 | low)
    words = octets.view(">u8")
    return words[:, 0].astype(np.uint64)

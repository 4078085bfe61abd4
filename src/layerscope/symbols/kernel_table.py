"""Functions of the running kernel, by /proc/kallsyms: names of addresses that a sample has from
this boot.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KALLSYMS = Path("/proc/kallsyms")
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
    """

    def __init__(self, path: Path | None = None) -> None:
        self._text = _content(path or KALLSYMS)
        starts, self._names, self._ends, self._is_code = _lines(self._text)
        # The list has a symbol for each name; the first of one address is as good as any.
        order = np.argsort(starts, kind="stable")
        self._starts, self._order = starts[order], order
        self.hidden = not starts.any()

    def names(self, addresses: NDArray[np.uint64]) -> list[str]:
        """The function each address lies in, of a module as `name [module]`; "" where none is
        known.
        """
        if self.hidden:
            return [""] * len(addresses)
        last = np.searchsorted(self._starts, addresses, "right")
        known = last > 0
        at_or_before = np.maximum(last - 1, 0)
        begin = self._starts[at_or_before]
        first = np.searchsorted(self._starts, begin, "left")
        return [
            self._best(one, end) if is_known else ""
            for one, end, is_known in zip(first, last, known, strict=True)
        ]

    def _best(self, first: int, end: int) -> str:
        rows = self._order[first:end]
        code = rows[self._is_code[rows]]
        if not len(code):
            # Data have no name here, and end the function before them.
            return ""
        row = code[0]
        text = self._text[self._names[row] : self._ends[row]]
        words = text.split()[:2]
        return b" ".join(words).decode("utf-8", "replace")


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

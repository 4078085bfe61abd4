"""Functions of the running kernel, by /proc/kallsyms: names of addresses that a sample has from this boot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KALLSYMS = Path("/proc/kallsyms")
_CODE = frozenset(b"tTwW")
_BYTES_MOST = 1 << 28  # it has some megabytes


class KernelTable:
    """The table as it is now. `hidden`: the kernel tells no addresses to this user, so nothing is found."""

    def __init__(self, path: Path | None = None) -> None:
        starts, names = _read(path or KALLSYMS)
        # The list has a symbol for each name; the first of one address is as good as any.
        order = np.argsort(starts, kind="stable")
        self._starts, self._order, self._names = starts[order], order, names
        self.hidden = not starts.any()

    def names(self, addresses: NDArray[np.uint64]) -> list[str]:
        """The function each address lies in, of a module as `name [module]`; "" where none is known."""
        if self.hidden:
            return [""] * len(addresses)
        last = np.searchsorted(self._starts, addresses, "right")
        known = last > 0
        begin = self._starts[np.maximum(last - 1, 0)]
        first = np.searchsorted(self._starts, begin, "left")
        return [self._best(one, end) if is_known else "" for one, end, is_known in zip(first, last, known, strict=True)]

    def _best(self, first: int, end: int) -> str:
        texts = [self._names[self._order[row]] for row in range(first, end)]
        return next((text for text in texts if text), "")


def _read(path: Path) -> tuple[NDArray[np.uint64], list[str]]:
    """Start of every symbol, and its name; data have "", and end the function before them."""
    try:
        with path.open("rb") as file:
            lines = file.read(_BYTES_MOST).splitlines()
    except OSError:
        return np.zeros(0, np.uint64), []
    starts, names = [], []
    for line in lines:
        words = line.split()
        if len(words) < 3 or len(words[1]) != 1:
            continue
        try:
            start = int(words[0], 16)
        except ValueError:
            continue
        if start >> 64:
            continue
        starts.append(start)
        names.append(b" ".join(words[2:4]).decode("utf-8", "replace") if words[1][0] in _CODE else "")
    return np.array(starts, np.uint64), names

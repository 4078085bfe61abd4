"""Names of code that was made while the program ran: maps as perf reads them, /tmp/perf-PID.map.

Each line is START SIZE NAME, the numbers hexadecimal. Code goes and other code takes its place:
what was written last holds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols.elf_file import opened

_BYTES_MOST = 1 << 28


def names(path: Path, addresses: NDArray[np.uint64]) -> list[str]:
    """The name of the code at each address; "" where none is known. OSError where the file cannot
    be read.
    """
    with opened(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
        lines = file.read(_BYTES_MOST).splitlines()
    starts, ends, texts = [], [], []
    for line in lines:
        words = line.split(None, 2)
        try:
            start, size = int(words[0], 16), int(words[1], 16)
            text = words[2]
        except (ValueError, IndexError):
            continue
        if 0 <= start < start + size < 1 << 64:
            starts.append(start)
            ends.append(start + size)
            texts.append(text)
    order = np.argsort(addresses, kind="stable")
    asked = np.asarray(addresses, np.uint64)[order]
    first = np.searchsorted(asked, np.array(starts, np.uint64), "left")
    end = np.searchsorted(asked, np.array(ends, np.uint64), "left")
    found = np.full(len(asked), -1)
    for entry in np.flatnonzero(end > first).tolist():
        found[first[entry] : end[entry]] = entry
    result = [""] * len(asked)
    for place, entry in zip(order.tolist(), found.tolist(), strict=True):
        result[place] = texts[entry].decode("utf-8", "replace") if entry >= 0 else ""
    return result

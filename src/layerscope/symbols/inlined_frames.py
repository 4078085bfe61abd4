"""Frames of functions that a compiler has inlined: each with the line that it was at, inside of the
function that has the symbol.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols.dwarf_inlined import InlinedCall, InlinedCalls
from layerscope.symbols.dwarf_lines import FoundLines, Lines
from layerscope.symbols.known_addresses import InlinedFrame, InlinedFrames


def split(
    addresses: NDArray[np.uint64], found: FoundLines, lines: Lines, calls: InlinedCalls
) -> InlinedFrames:
    """The inlined functions at addresses, which are in order, with names as the linker has them.
    The lines in `found` are then those of the functions around.
    """
    result: dict[int, tuple[InlinedFrame, ...]] = {}
    units, counts = np.unique(found.units[found.units >= 0], return_counts=True)
    # Where a limit leaves something out, it is what was asked least.
    for unit in units[np.argsort(-counts, kind="stable")].tolist():
        rows = np.flatnonzero(found.units == unit)
        chains = calls.find(unit, addresses[rows].tolist())
        if chains is None:
            found.is_limited[rows] = True
            continue
        for row, chain in zip(rows.tolist(), chains, strict=True):
            if chain:
                result[row] = _frames(row, chain, found, lines)
    return result


def _frames(
    row: int, chain: list[InlinedCall], found: FoundLines, lines: Lines
) -> tuple[InlinedFrame, ...]:
    """The frames of one address. Each function is at the line where the next one is called."""
    unit = int(found.units[row])
    inside = chain[0]
    outermost = lines.path(unit, inside.file), inside.line or -1
    frames = []
    for call, inside in pairwise(chain):
        file = lines.path(unit, inside.file)
        frames.append(InlinedFrame(call.name, "", file, inside.line or -1))
    innermost = found.files[row], int(found.lines[row])
    frames.append(InlinedFrame(inside.name, "", *innermost))
    found.files[row], found.lines[row] = outermost
    return tuple(frame for frame in frames if frame.name)

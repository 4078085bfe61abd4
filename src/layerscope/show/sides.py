"""What differs between two machines, as text: what each has, side by side where there is room, and
what it does.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TextIO

from layerscope.show.screen import printable

_GAP = 2
_SUBJECT_MOST = 24
_NARROWEST = 16
# Without a terminal nothing is folded but for reading's sake.
_WIDE = 160


def write(
    rows: Sequence[tuple[str, str, str, str]], names: tuple[str, str], stream: TextIO
) -> None:
    """Print rows of (subject, here, there, why) under the names of both machines."""
    if not rows:
        here, there = map(printable, names)
        stream.write(f"Nothing that matters differs between {here} and {there}.\n")
        return
    width = shutil.get_terminal_size().columns if stream.isatty() else _WIDE
    heading = ("what", f"here: {names[0]}", f"there: {names[1]}", "why it matters")
    table = [[printable(cell) for cell in row] for row in (heading, *rows)]
    longest = [max(map(len, column)) for column in zip(*table, strict=True)]
    subject = min(_SUBJECT_MOST, longest[0])
    left = width - subject - 3 * _GAP
    widths = [subject, *_shared(left, longest[1:])]
    for row in table:
        folded = [_folded(cell, room) for cell, room in zip(row, widths, strict=True)]
        for line in zip_longest(*folded, fillvalue=""):
            padded = (f"{cell:<{room}}" for cell, room in zip(line, widths, strict=True))
            text = (" " * _GAP).join(padded)
            stream.write(text.rstrip() + "\n")


def _shared(room: int, wanted: list[int]) -> list[int]:
    """What each column gets of `room`: those that need little that, the others the same share of
    the rest.
    """
    given: dict[int, int] = {}
    for rest, place in zip(
        range(len(wanted), 0, -1), sorted(range(len(wanted)), key=wanted.__getitem__), strict=True
    ):
        given[place] = min(wanted[place], max(_NARROWEST, (room - sum(given.values())) // rest))
    return [given[place] for place in range(len(wanted))]


def _folded(cell: str, width: int) -> list[str]:
    """The cell in lines of this width, at least one."""
    lines = textwrap.wrap(cell, width, break_on_hyphens=False)
    return lines or [""]

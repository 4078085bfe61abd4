"""Which spans the user, or the source, calls a step. Used by `epochs`."""

from __future__ import annotations

import numpy as np

from layerscope.ingest.spans import Columns
from layerscope.ingest.string_table import StringTable

# What the names of steps end with that are numbered: ProfilerStep#12.
NUMBERED = "#"


def marked_names(texts: StringTable, step_mark: str) -> list[int]:
    """The codes of the names that a step has: the one that was said, or all that go on with a
    number where it ends with #.
    """
    known = texts.names
    if not step_mark.endswith(NUMBERED):
        return [known[step_mark]] if step_mark in known else []
    found = []
    for name, code in known.items():
        number = name.removeprefix(step_mark)
        if number != name and number.isdigit():
            found.append(code)
    return found


def name_lines(texts: StringTable, step_mark: str, lines: Columns) -> None:
    """Where FILE:LINE or NAME# was said, the ranges of that line, or with a number behind that
    name, are called by it; in place.
    """
    if step_mark.endswith(NUMBERED):
        numbered = np.isin(lines["name_code"], marked_names(texts, step_mark))
        lines["name_code"][numbered] = texts.name(step_mark)
        return
    file, _, number = step_mark.rpartition(":")
    if not file or not number.isdigit():
        return
    codes = []
    ending = f"/{step_mark}"
    for line, code in texts.lines.items():
        if f"/{line}".endswith(ending):
            codes.append(code)
    is_marked = np.isin(lines["line_code"], codes)
    lines["name_code"][is_marked] = texts.name(step_mark)

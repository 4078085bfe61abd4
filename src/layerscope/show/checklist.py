"""Checks as text: one line each with its state in front, folded at the width of a terminal, and its
remedy below.

A remedy stays on one line, however long: it is there to be pasted.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

from layerscope.show.screen import printable

_WIDTHS = (9, 14)


def write(rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Print rows of (subject, state, what, remedy)."""
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    state_width, subject_width = _WIDTHS
    indent = " " * sum(_WIDTHS)
    for subject, state, what, remedy in rows:
        head = f"{state:<{state_width}}{subject:<{subject_width}}"
        stream.write(folded(head, what, width))
        if remedy:
            stream.write(folded(indent, f"Remedy: {remedy}", 0))


def folded(head: str, words: str, width: int) -> str:
    """`head` and `words` behind it, in lines of `width` (0: one line)."""
    words = printable(words)
    indent = sum(_WIDTHS)
    if width < indent + 20:
        return f"{head}{words}\n".replace("  \n", "\n")
    room = width - indent
    lines = textwrap.wrap(words, room, break_long_words=False, break_on_hyphens=False)
    if not lines:
        return f"{head}\n"
    begin = head
    text = ""
    for line in lines:
        text += f"{begin}{line}\n"
        begin = " " * indent
    return text

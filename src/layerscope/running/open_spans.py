"""The operators and modules that are open on each thread of a process that is being recorded: its
rings are memory of its own, which can be read from outside.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from layerscope.model.running import OpenSpan
from layerscope.rawfile import layout

_MAPPED = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ \S+ 0+ .*/memfd:layerscope-", re.MULTILINE)
_SLOT = struct.Struct("<QQII")  # start, state, name, kind
_ENTRY = struct.Struct("<II")
_CLOSED = 1
_KIND = 0xFF
_NAMES_MOST_BYTES = 1 << 26


def open_spans(pid: int, root: Path = Path("/")) -> dict[int, tuple[OpenSpan, ...]]:
    """By the number of the thread in its own namespace, the outermost first; empty where the
    process is not being recorded.
    """
    folder = root / "proc" / str(pid)
    try:
        starts = [int(word, 16) for word in _MAPPED.findall((folder / "maps").read_text())]
        memory = os.open(folder / "mem", os.O_RDONLY | os.O_CLOEXEC) if starts else -1
    except OSError:  # another user's, or it has ended
        return {}
    if memory < 0:
        return {}
    try:
        return _read(memory, starts)
    except OSError:
        return {}
    finally:
        os.close(memory)


def _read(memory: int, starts: list[int]) -> dict[int, tuple[OpenSpan, ...]]:
    """By thread what is open; rings and names are told apart
    by the first word of their memory.
    """
    names: dict[int, str] = {}
    stacks: dict[int, list[tuple[int, int]]] = {}
    for start in starts:
        head = os.pread(memory, layout.RING_HEADER, start)
        magic, version = _ENTRY.unpack_from(head)
        if version == layout.VERSION and magic == layout.NAMES_MAGIC:
            names.update(_names(memory, start, head))
        if version == layout.VERSION and magic == layout.RING_MAGIC:
            tid, slots = _slots(head)
            if slots:
                stacks[tid] = slots
    found: dict[int, tuple[OpenSpan, ...]] = {}
    for tid, slots in stacks.items():
        found[tid] = tuple(_spans(slots, names))
    return found


def _field(name: str, fields: dict[str, tuple[int, str]], head: bytes) -> int:
    """A number in the header of a ring or of names, by where
    `fields` says that it lies.
    """
    offset, kind = fields[name]
    (value,) = struct.unpack_from(kind, head, offset)
    return int(value)


def _slots(head: bytes) -> tuple[int, list[tuple[int, int]]]:
    """The thread that has the ring, and of each open span its name and kind."""
    tid = _field("tid", layout.RING_FIELDS, head)
    depth = _field("depth", layout.RING_FIELDS, head)
    if not _field("track", layout.RING_FIELDS, head):
        return tid, []
    begin, _ = layout.RING_FIELDS["open"]
    found = []
    for place in range(min(depth, layout.OPEN_SLOTS)):
        _, state, name, kind = _SLOT.unpack_from(head, begin + place * _SLOT.size)
        if not state & _CLOSED:
            found.append((name, kind & _KIND))
    return tid, found


def _names(memory: int, start: int, head: bytes) -> Iterator[tuple[int, str]]:
    """The numbers and texts of a segment of names, as
    native/layout.h has them.
    """
    used = min(_field("used", layout.NAMES_FIELDS, head), _NAMES_MOST_BYTES)
    content = os.pread(memory, used, start + layout.NAMES_HEADER)
    at = 0
    while at + _ENTRY.size <= len(content):
        number, size = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        text = content[at : at + size]
        yield number, text.decode("utf-8", "replace")
        at += (size + 8) & ~7  # a NUL is behind it


def _spans(slots: list[tuple[int, int]], names: dict[int, str]) -> Iterator[OpenSpan]:
    """The spans with their names; those of a layout that we do
    not know are left out.
    """
    for name, kind in slots:
        if kind < len(layout.SPAN_KINDS):
            word, layer = layout.SPAN_KINDS[kind]
            # Of a module the name of its class and its place follow in lines of their own.
            yield OpenSpan(layer, word, names.get(name, "?").partition("\n")[0])

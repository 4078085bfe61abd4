"""Events of Chrome JSON as columns, by the scan of native/traces: the file is read once, in pieces,
and no event is an object of Python.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.errors import ReadError
from layerscope.sources import scanned_spans
from layerscope.sources.scanned_spans import ScannedSpans
from layerscope.sources.text_chunks import raw_parts

LIBRARY = Path(__file__).parent.parent / "native" / "liblayerscope-traces.so"
# LT_VERSION of native/traces/traces.h. A library of other sources is not called.
VERSION = 2
# Rows that are handed on together, or a few more.
BLOCK_ROWS = 1 << 18
NONE = np.iinfo(np.int64).min
_MOST_LANES = 64  # of nesting.c
# Bits of `flags`.
HAS_TIME, HAS_DURATION, HAS_VALUE, ODD_ARGUMENTS, IMPOSSIBLE, HAS_RECORD = 1, 2, 4, 8, 16, 32
# No trace is packed so well: what unpacks to more is refused.
MOST_UNPACKED_BYTES = 1 << 30
MOST_RATIO = 200
# As lt_columns gives them.
NUMBERS = ("external", "correlation", "stream", "device", "sequence", "forward")
_TYPES: dict[str, Any] = {
    "phase": np.uint8,
    "flags": np.uint8,
    "category": np.int32,
    "name": np.int32,
    "pid": np.int32,
    "tid": np.int32,
    "args": np.int32,
    "time_ns": np.int64,
    "duration_ns": np.int64,
    "id": np.int64,
    **dict.fromkeys(NUMBERS, np.int64),
}
_CATEGORIES, _NAMES, _SCALARS, _ARGUMENTS, _IDS, _BESIDE, _PLACES, _WIDE = range(8)
_WORD = re.compile(r"(?<![\w.+-])-?[A-Za-z_]\w*(?![\w.])")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_LAST_COMMA = re.compile(r",\s*([}\]])")
_PLAIN_WORDS = ("true", "false", "null")

Columns = dict[str, np.ndarray]


class ScannedTrace(Struct):
    """What a file has beside its rows. Texts by their numbers.

    `beside`: what stands beside the events, as JSON. `damaged`: how many events could not be read,
    of which `example` was the first. `is_cut`: it ends within an event. `has_header`, `has_end`:
    whether the list of events has them. `spans`: those of a trace of Kineto.
    """

    categories: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    scalars: list[int | str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    beside: dict[str, Any] = field(default_factory=dict)
    damaged: int = 0
    example: str = ""
    is_cut: bool = False
    has_header: bool = False
    has_end: bool = False
    spans: ScannedSpans = field(default_factory=ScannedSpans)


class _About(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64) for name in ("damaged", "headers", "ended", "cut", "headless")
    ]


def scan(path: Path, take: Callable[[Columns], object], numbers: bool = False) -> ScannedTrace:
    """Hand on all rows of the file `path`, which may be packed with gzip, block by block; arrays
    are valid until `take` returns. `numbers`, for a trace of Kineto: take those that differ in
    every event out of the arguments, and keep the spans apart. ReadError when the file, or the
    library, cannot be read.
    """
    library = compiled_scan()
    if library is None:
        raise ReadError(
            f"{path} cannot be read without the part of layerscope that is compiled, which is not "
            "here: install a C compiler (for example gcc), then install layerscope again"
        )
    handle = library.lt_new(int(numbers))
    if not handle:
        raise MemoryError
    try:
        for piece, is_last in _pieces(path):
            rows = library.lt_feed(handle, piece, len(piece), is_last)
            if rows < 0:
                raise MemoryError
            if rows and (rows >= BLOCK_ROWS or is_last):
                take(_columns(library, handle, rows))
                library.lt_clear(handle)
        return _told(library, handle)
    finally:
        library.lt_free(handle)


def _pieces(path: Path) -> Iterator[tuple[bytes, bool]]:
    read_bytes = most_bytes = 0
    for piece in raw_parts(path):
        most_bytes = most_bytes or max(MOST_UNPACKED_BYTES, MOST_RATIO * path.stat().st_size)
        read_bytes += len(piece)
        if read_bytes > most_bytes:
            raise ReadError(
                f"{path} unpacks to more than {most_bytes / 1e9:,.1f} GB, {MOST_RATIO} times its "
                "size: if it is a trace, unpack it first (gunzip) and open that"
            )
        if piece:
            yield piece, False
    yield b"", True


def _columns(library: ctypes.CDLL, handle: int, rows: int) -> Columns:
    """The rows of a block as arrays over the memory of the scan."""
    addresses = (ctypes.c_void_p * len(_TYPES))()
    library.lt_columns(handle, addresses)
    found = {}
    for (name, kind), address in zip(_TYPES.items(), addresses, strict=True):
        size = np.dtype(kind).itemsize * rows
        memory = (ctypes.c_char * size).from_address(address)
        found[name] = np.frombuffer(memory, kind)
    return found


def _told(library: ctypes.CDLL, handle: int) -> ScannedTrace:
    """What is known when the file has ended."""
    about = _About()
    library.lt_tell(handle, ctypes.byref(about))
    example = ctypes.c_void_p()
    length = library.lt_example(handle, ctypes.byref(example))
    words = b"" if not length else ctypes.string_at(example.value or 0, length)
    beside = [text.partition('"') for text in _texts(library, handle, _BESIDE)]
    places, wide = (_bytes(library, handle, which)[0] for which in (_PLACES, _WIDE))
    return ScannedTrace(
        categories=list(map(_unescaped, _texts(library, handle, _CATEGORIES))),
        names=list(map(_unescaped, _texts(library, handle, _NAMES))),
        scalars=list(map(_scalar, _texts(library, handle, _SCALARS))),
        arguments=_texts(library, handle, _ARGUMENTS),
        ids=_texts(library, handle, _IDS),
        beside={key: _decoded(text.lstrip(" \t\r\n:")) for key, _, text in beside},
        damaged=about.damaged,
        example=" ".join(words.decode("utf-8", "replace").split()),
        is_cut=bool(about.cut),
        has_header=bool(about.headers) and not about.headless,
        has_end=bool(about.ended),
        spans=scanned_spans.taken(library, handle, places, wide),
    )


def _bytes(library: ctypes.CDLL, handle: int, which: int) -> tuple[bytes, list[int]]:
    """What a table has, and where each of its texts begins and the last one ends."""
    text, at = ctypes.c_void_p(), ctypes.c_void_p()
    count = library.lt_texts(handle, which, ctypes.byref(text), ctypes.byref(at))
    if not count:
        return b"", []
    array = ctypes.c_uint64 * (count + 1)
    places = array.from_address(at.value or 0)
    numbers = np.frombuffer(places, np.uint64)
    bounds = numbers.tolist()
    return ctypes.string_at(text.value or 0, bounds[-1]), bounds


def _texts(library: ctypes.CDLL, handle: int, which: int) -> list[str]:
    """Texts of a table, by their numbers."""
    whole, bounds = _bytes(library, handle, which)
    found = []
    for first, last in pairwise(bounds):
        piece = whole[first:last]
        found.append(piece.decode("utf-8", "replace"))
    return found


def _unescaped(text: str) -> str:
    """A text of JSON as it is meant; one that was written as it is stays so."""
    if "\\" not in text:
        return text
    try:
        meant = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text
    return str(meant).encode("utf-8", "replace").decode()


def _scalar(text: str) -> int | str:
    """A number or a text that a field has."""
    if text.startswith('"'):
        return _unescaped(text[1:-1])
    try:
        return int(text)
    except ValueError:
        return text


def _decoded(text: str) -> Any:
    """What the text says; NaN and Infinity, which are no JSON, as words, as in arguments."""
    try:
        return json.loads(text, strict=False, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def as_json(text: str) -> str:
    """Arguments that are no JSON as they are written, as JSON: what has no word there is a text."""
    words = _TEXT.split(text)
    texts = _TEXT.findall(text)
    quoted = [_WORD.sub(_quoted, part) for part in words]
    pairs_ = zip(quoted, [*texts, ""], strict=True)
    whole = "".join(part + one for part, one in pairs_)
    whole = _LAST_COMMA.sub(r"\1", whole)
    try:
        found = json.loads(whole, strict=False)
        return json.dumps(found if isinstance(found, dict) else {"args": found})
    except (ValueError, RecursionError):
        return json.dumps({"unreadable": text})


def _quoted(found: re.Match[str]) -> str:
    """A word as a text, unless JSON has it."""
    word = found[0]
    if word in _PLAIN_WORDS:
        return word
    return f'"{word}"'


def pairs(group: np.ndarray, name: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The row of the other end of each event that begins or ends a span, -1: it has none. Rows come
    by group, then time.
    """
    library = compiled_scan()
    assert library is not None
    arrays = (group.astype(np.int32), name.astype(np.int32), begins.astype(np.uint8))
    other, stack = np.empty((2, len(group)), np.int64)
    addresses = [array.ctypes.data for array in arrays]
    library.lt_pairs(*addresses, len(group), other.ctypes.data, stack.ctypes.data)
    return other


def lanes(group: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, depth: int) -> np.ndarray:
    """The lane of each span of a group: spans that cross lie in different ones. Rows come by group,
    then start; of two that start together the longer one first. `depth`: how many are open at most.
    """
    library = compiled_scan()
    assert library is not None
    arrays = (group.astype(np.int32), start_ns.astype(np.int64), end_ns.astype(np.int64))
    lane = np.zeros(len(group), np.int32)
    stack = np.empty(_MOST_LANES * (depth + 1), np.int64)
    addresses = [array.ctypes.data for array in arrays]
    places = lane.ctypes.data, stack.ctypes.data
    library.lt_lanes(*addresses, len(group), *places, depth + 1)
    return lane


@cache
def compiled_scan() -> ctypes.CDLL | None:
    """None: it is not there, or of other sources."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        version = library.lt_version
    except (OSError, AttributeError):
        return None
    version.restype = ctypes.c_int64
    if version() != VERSION:
        return None
    place, number = ctypes.c_void_p, ctypes.c_int64
    library.lt_new.restype = place
    library.lt_new.argtypes = [number]
    library.lt_free.argtypes = library.lt_clear.argtypes = [place]
    library.lt_free.restype = library.lt_clear.restype = None
    library.lt_feed.restype = library.lt_texts.restype = library.lt_example.restype = number
    library.lt_feed.argtypes = [place, ctypes.c_char_p, number, number]
    library.lt_columns.argtypes = library.lt_tell.argtypes = [place, place]
    library.lt_columns.restype = library.lt_tell.restype = None
    library.lt_texts.argtypes = [place, number, place, place]
    library.lt_example.argtypes = [place, place]
    library.lt_pairs.restype = None
    library.lt_pairs.argtypes = [place, place, place, number, place, place]
    library.lt_take_spans.restype = number
    library.lt_take_spans.argtypes = [place, place]
    library.lt_give_back.restype = None
    library.lt_give_back.argtypes = [place]
    library.lt_lanes.restype = number
    library.lt_lanes.argtypes = [place, place, place, number, place, place, number]
    return library

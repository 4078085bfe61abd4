"""JSON that another program wrote, taken with the types that it should have; a file that was cut is
read up to the last value that is whole. Used by `rocprof` and `speedscope`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from layerscope.model.errors import ReadError
from layerscope.sources import text_chunks

_MOST_BYTES = 1 << 31
_MOST_DEPTH = 64
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_CLOSES = {b"{": b"}", b"[": b"]"}

T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> tuple[T, bool]:
    """What is in the file `path`, packed or not, and whether it was cut. ReadError when it is
    something else.
    """
    content = _content(path)
    decoder = msgspec.json.Decoder(kind, strict=True)
    try:
        return _decoded(decoder, content), False
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        why = error
    shortened = _closed(content)
    if shortened is not None:
        try:
            return _decoded(decoder, shortened), True
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            why = error
    raise ReadError(f"{path} is damaged ({why}): copy it again, or record again")


def _decoded(decoder: msgspec.json.Decoder[T], content: bytes) -> T:
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeError):
        # What is no UTF-8 may be a name only.
        try:
            content.decode()
        except UnicodeDecodeError:
            return decoder.decode(content.decode("utf-8", "replace").encode())
        raise


def _content(path: Path) -> bytes:
    parts, size = [], 0
    for piece in text_chunks.raw_parts(path):
        parts.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise ReadError(
                f"{path} is refused: unpacked it has more than {_MOST_BYTES >> 30} GiB. Record less"
            )
    return b"".join(parts)


def _closed(content: bytes) -> bytes | None:
    """The content up to the last list or object that is whole, with what closes those around it;
    None: there is none.
    """
    open_: list[bytes] = []
    best: tuple[int, tuple[bytes, ...]] | None = None
    for found in _TOKEN.finditer(content):
        token = found[0]
        closes = _CLOSES.get(token)
        if closes is not None:
            open_.append(closes)
            if len(open_) > _MOST_DEPTH:
                return None
        elif open_ and token == open_[-1]:
            open_.pop()
            best = found.end(), tuple(open_)
        elif not token.startswith(b'"'):
            break
    if best is None or not best[1]:
        return None
    end, around = best
    return content[:end] + b"".join(reversed(around))

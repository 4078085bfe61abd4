"""Blocks of data as the page reads them (web/src/data/blocks.ts): JSON, or columns of integers.

A column is written in planes: all low bytes, then all next ones, up to the last that is not zero
everywhere. A block is packed with raw deflate, which finds what planes have in common: measured on
a million spans, 3.1 bytes each. Numbers are exact up to 2^53, which JavaScript's are too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

# Level 6 packs 4 % better than 5 at the same speed, 9 takes five times as long for 2 %.
_LEVEL = 6
_MOST_EXACT = 2**53
JSON, COLUMNS = "json", "columns"
# How a column is written: as it is, or as differences of neighbours.
PLAIN, DELTA = "plain", "delta"


class Block(Struct, frozen=True):
    """One block. `about`: how the page reads it; `packed`: what it holds, by raw deflate."""

    name: str
    about: Mapping[str, Any]
    packed: bytes


class BlockGroup(Struct, frozen=True):
    """Blocks that are made together: their names, and what makes them."""

    names: tuple[str, ...]
    make: Callable[[], Iterable[Block]]


class IntColumn(Struct, frozen=True):
    """Integers with a name. Of `DELTA` the differences are written, the first one from 0."""

    name: str
    values: np.ndarray
    mode: str = PLAIN


def json_block(
    name: str,
    value: Any,
) -> Block:
    """A block of anything that JSON can hold."""
    return Block(name, {"kind": JSON}, _packed(as_json(value)))


def as_json(value: Any) -> bytes:
    """`value` as JSON. Half a pair of surrogates, which a name of a file may hold, is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def column_block(
    name: str,
    columns: Iterable[IntColumn],
) -> Block:
    """A block of columns of one length, each packed before the next one is asked for."""
    packer = _packer()
    packed, abouts, rows = [], [], 0
    for column in columns:
        written = _Written(column)
        rows = len(column.values)
        abouts.append(written.about)
        packed.append(packer.compress(written.planes))
    packed.append(packer.flush())
    about = {"kind": COLUMNS, "rows": rows, "columns": abouts}
    return Block(name, about, b"".join(packed))


def plain_columns(columns: Iterable[IntColumn]) -> tuple[dict[str, Any], bytes]:
    """Columns of one length that nobody packs, as the way is short, and how they are read."""
    abouts, planes, rows = [], [], 0
    for column in columns:
        written = _Written(column)
        rows = len(column.values)
        abouts.append(written.about)
        planes.append(written.planes)
    return {"kind": COLUMNS, "rows": rows, "columns": abouts}, b"".join(planes)


class _Written:
    """A column as bytes, and how to read them."""

    def __init__(self, column: IntColumn) -> None:
        values = np.asarray(column.values, np.int64)
        mode = column.mode if _has_differences(values) else PLAIN
        if mode == DELTA:
            values = np.diff(values, prepend=0)
        is_signed = bool(len(values)) and int(values.min()) < 0
        unsigned = _zigzag(values) if is_signed else values.view(np.uint64)
        width = (int(unsigned.max(initial=0)).bit_length() + 7) // 8
        self.about = {"name": column.name, "bytes": width, "mode": mode, "signed": is_signed}
        self.planes = _planes(unsigned, width)


def _has_differences(values: np.ndarray) -> bool:
    """Whether no difference of two of them is larger than what JavaScript adds up exactly."""
    return int(values.max(initial=0)) - int(values.min(initial=0)) <= _MOST_EXACT


def _zigzag(values: np.ndarray) -> np.ndarray:
    """Signed numbers as those of which small ones have few bytes: 0, -1, 1, -2 as 0, 1, 2, 3."""
    return np.asarray((values << 1) ^ (values >> 63)).view(np.uint64)


def _planes(
    values: np.ndarray,
    width: int,
) -> bytes:
    """All low bytes, then all next ones."""
    as_bytes = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)
    return np.ascontiguousarray(as_bytes[:, :width].T).tobytes()


def _packer() -> Any:
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)


def _packed(data: bytes) -> bytes:
    packer = _packer()
    packed: bytes = packer.compress(data) + packer.flush()
    return packed

"""zstd streams that were never ended, such as those in which perf packs its records."""

from __future__ import annotations

import pyarrow as pa

_ZSTD_FRAME = 0xFD2FB528
_LAST_BLOCK = b"\x01\0\0"


def inflated(packed: bytes, most_bytes: int) -> bytes:
    """What is packed in a stream that was never ended, as far as whole blocks go; about
    `most_bytes` of it at most.
    """
    pieces, length = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(_ended(packed)), "zstd") as stream:
            while length < most_bytes and (piece := stream.read(1 << 16)):
                pieces.append(piece)
                length += len(piece)
    except (OSError, pa.ArrowException):
        pass
    return b"".join(pieces)


def _ended(packed: bytes) -> bytes:
    """The frames of `packed` (RFC 8878), the last of them ended behind its last whole block."""
    at = 0
    while at + 6 <= len(packed) and _number(packed[at : at + 4]) == _ZSTD_FRAME:
        descriptor = packed[at + 4]
        has_checksum = descriptor >> 2 & 1
        at += 5 + _header_bytes(descriptor)
        is_last = 0
        while not is_last:
            header = _number(packed[at : at + 3])
            is_last = header & 1
            is_run = header >> 1 & 3 == 1
            length = 1 if is_run else header >> 3
            if at + 3 + length > len(packed):
                return packed[:at] + _LAST_BLOCK
            at += 3 + length
        at += 4 * has_checksum
    return packed[:at]


def _header_bytes(descriptor: int) -> int:
    """The length of what follows the descriptor in the header of a zstd frame."""
    is_single = descriptor >> 5 & 1
    window_bytes = 1 - is_single
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (is_single, 2, 4, 8)[descriptor >> 6]
    return window_bytes + dictionary_bytes + size_bytes


def _number(content: bytes) -> int:
    return int.from_bytes(content, "little")

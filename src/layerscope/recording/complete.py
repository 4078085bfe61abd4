"""`tables.json`: written when every table of a recording is whole. It names their files with sizes
and checksums, so that a file that was cut, damaged, lost or exchanged is noticed when the recording
is opened.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from layerscope.model.errors import ReadError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.model.stored_json import Size, decoded

COMPLETE = "tables.json"
# Checksums are read at half a second a gigabyte. Of what is larger, the largest files are judged by
# size and columns.
MOST_CHECKED_BYTES = 1 << 30
_READ_BYTES = 1 << 20


class FileState(msgspec.Struct):
    """A file of a table: its size, and the CRC-32 of its bytes."""

    size_bytes: Size
    crc32: Size


class TablesState(msgspec.Struct):
    """What stands in `tables.json`. `raw_bytes`: how much of the raw files the tables were made
    of.
    """

    schema: Size
    raw_bytes: Size = 0
    rows: dict[str, Size] = {}
    files: dict[str, FileState] = {}


def write_state(folder: Path, raw_bytes: int, rows: dict[str, int], files: Iterable[Path]) -> None:
    """Say by a file, written by rename, that the tables in `folder` are whole."""
    states = {
        str(file.relative_to(folder)): FileState(file.stat().st_size, _crc32(file))
        for file in files
    }
    state = TablesState(SCHEMA_VERSION, raw_bytes, rows, states)
    temporary = folder / f"{COMPLETE}.tmp"
    temporary.write_bytes(msgspec.json.encode(state))
    os.replace(temporary, folder / COMPLETE)


def read_state(folder: Path) -> TablesState | None:
    """What `tables.json` in `folder` says; None when there is none, or none that can be read."""
    try:
        return decoded((folder / COMPLETE).read_bytes(), TablesState)
    except (OSError, ValueError):
        return None


def check_files(folder: Path, state: TablesState, present: Iterable[Path]) -> None:
    """Raise ReadError unless the files of the tables that are `present` in `folder` are those that
    were written.
    """
    if not state.files:  # written before files were listed
        return
    found = {str(file.relative_to(folder)): file for file in present}
    for name in state.files.keys() - found.keys():
        raise ReadError(f"{folder / name} is missing")
    for name in found.keys() - state.files.keys():
        raise ReadError(f"{found[name]} is not a file of this recording")
    left_bytes = MOST_CHECKED_BYTES
    for name, about in sorted(state.files.items(), key=lambda item: item[1].size_bytes):
        try:
            if found[name].stat().st_size != about.size_bytes:
                raise ReadError(f"{found[name]} does not have the size it was written with")
            left_bytes -= about.size_bytes
            if left_bytes >= 0 and _crc32(found[name]) != about.crc32:
                raise ReadError(f"{found[name]} was changed after it was written")
        except OSError as error:
            raise ReadError(f"{found[name]} cannot be read: {error.strerror or error}") from error


def _crc32(file: Path) -> int:
    crc = 0
    with file.open("rb") as stream:
        while piece := stream.read(_READ_BYTES):
            crc = zlib.crc32(piece, crc)
    return crc

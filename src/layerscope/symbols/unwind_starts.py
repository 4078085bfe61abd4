"""Where functions begin in a file without symbols: its table for unwinding has an entry for each.

The layout of `.eh_frame_hdr`: Linux Standard Base Core, section 10.6.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols.elf_file import Damaged, Elf

_SECTION = ".eh_frame_hdr"
_EXECUTED = 4  # SHF_EXECINSTR
_MOST_BYTES = 1 << 26
# Version 1, a count of four bytes, and a sorted table of four signed bytes, from the section on.
# No linker writes another one.
_VERSION, _COUNT, _TABLE = 1, 0x03, 0x3B
_HEAD_BYTES = 12
_ENTRY = np.dtype([("start", "<i4"), ("entry", "<i4")])


def starts_of(elf: Elf) -> NDArray[np.uint64]:
    """The addresses at which functions begin, ascending; none where the file has no such table."""
    none = np.zeros(0, np.uint64)
    section = elf.section(_SECTION)
    if section is None:
        return none
    try:
        content = elf.data(section, _MOST_BYTES)
    except Damaged:
        return none
    if len(content) < _HEAD_BYTES:
        return none
    version, _, count_kind, table_kind = content[:4]
    if (version, count_kind, table_kind) != (_VERSION, _COUNT, _TABLE):
        return none
    (count,) = np.frombuffer(content, "<u4", 1, 8).tolist()
    whole = (len(content) - _HEAD_BYTES) // _ENTRY.itemsize
    rows = np.frombuffer(content, _ENTRY, min(count, whole), _HEAD_BYTES)
    starts = rows["start"].astype(np.int64) + section.address
    return np.sort(starts[starts >= 0]).astype(np.uint64)


def names_by_start(elf: Elf, file: str, addresses: NDArray[np.uint64]) -> list[str]:
    """Names of the functions that addresses lie in, such as `[libgomp.so.1.0.0+0x1f3a0]`: the file
    and where the function begins. Empty for what is no code, or before the first function.
    """
    starts = starts_of(elf)
    rows = np.searchsorted(starts, addresses, side="right") - 1
    rows[~_is_code(elf, addresses)] = -1
    return [f"[{file}+{int(starts[row]):#x}]" if row >= 0 else "" for row in rows.tolist()]


def _is_code(elf: Elf, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each address lies in a section that is executed."""
    found = np.zeros(len(addresses), np.bool_)
    for section in elf.sections:
        if section.flags & _EXECUTED:
            first = np.uint64(section.address)
            last = np.uint64(section.address + section.size)
            found |= (addresses >= first) & (addresses < last)
    return found

"""Stacks that perf has only copied (`--call-graph dwarf`) unwound, by the unwinder of our sampler.

A sample has the registers of the user's side and what lay above the stack pointer. What was mapped
where, the file tells too; the files themselves must be on this machine, as they were. The chain of
a sample becomes what the kernel had walked and the addresses that are found.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct

from layerscope.sources import perf_records as rec
from layerscope.sources.perf_file import ARCH, PerfFile, Records
from layerscope.sources.perf_here import here
from layerscope.sources.perf_threads import ANONYMOUS, AddressSpace, Threads

LIBRARY = Path(__file__).parents[1] / "native" / "liblayerscope-unwinding.so"
_REGISTERS = 17
# In the order of native/samples.h, which registers of perf they are (enum perf_event_x86_regs).
_OF_PERF = (0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8)
_COPY = np.dtype(
    [
        ("registers", "<u8", (_REGISTERS,)),
        ("known", "<u8"),
        ("stack_at", "<u8"),
        ("stack_bytes", "<u8"),
    ]
)
_FRAMES_MOST = 1024
_AT_ONCE = 256
_TO_ROOT = 1
_USER_MARK = struct.pack("<Q", rec.CONTEXT_USER)


class Unwound(Struct):
    """How many stacks there were, and how many were unwound to the first function of the thread by
    files that are all here.
    """

    stacks: int = 0
    to_root: int = 0


def unwind(file: PerfFile, decoded: rec.Decoded, threads: Threads, space: np.ndarray) -> Unwound:
    """Give the samples of `decoded` the callers that their copies of stacks have; `space`: whose
    mappings each had.
    """
    samples = decoded.samples
    found = Unwound(int(np.count_nonzero(samples.stack_bytes)))
    library = _library() if found.stacks and file.text(ARCH) in ("", "x86_64") else None
    if library is None:
        return found
    rows = np.flatnonzero(samples.stack_bytes)
    chains = {chain: number for number, chain in enumerate(decoded.chains)}
    for number, of_space in rec.groups(space[rows]):
        maps, missing = _maps(threads.spaces[number])
        handle = library.lw_space(maps)
        if not handle:
            continue
        for mine in _pieces(file, samples, rows[of_space]):
            for row, addresses, is_to_root in _of_space(library, handle, file, samples, mine):
                found.to_root += is_to_root and not _is_in(addresses, missing)
                kernel = _of_kernel(decoded.chains[samples.chain[row]])
                chain = kernel + _USER_MARK + addresses.tobytes()
                samples.chain[row] = chains.setdefault(chain, len(chains))
                samples.tail[row] = 0
        library.lw_space_free(handle)
    decoded.chains = list(chains)
    return found


def _library() -> ctypes.PyDLL | None:
    """The unwinder; None: it was not compiled, or not for this machine.

    The addresses of arrays are handed to it as numbers. It has no locks: the GIL is kept.
    """
    try:
        library = ctypes.PyDLL(str(LIBRARY))
    except OSError:
        return None
    library.lw_space.restype = ctypes.c_void_p
    library.lw_space.argtypes = [ctypes.c_char_p]
    library.lw_space_free.argtypes = [ctypes.c_void_p]
    library.lw_unwind.restype = ctypes.c_uint64
    number, place = ctypes.c_uint64, ctypes.c_void_p
    library.lw_unwind.argtypes = [place, place, place, number, place, number, place, place]
    return library


def _maps(space: AddressSpace) -> tuple[bytes, np.ndarray]:
    """What was mapped, as /proc/PID/maps has it, of files as they are here; and from where to where
    files that are not here were.
    """
    lines, missing = [], []
    for one in space.mappings:
        is_file = not one.object.path.startswith(ANONYMOUS)
        path = here(one.object) if is_file else None
        if is_file and path is None:
            missing.append((one.start, one.end))
        numbers = _identity(path) if path else "0:0 0"
        place = f"{one.start:x}-{one.end:x} r-xp {one.offset:x}"
        lines.append(f"{place} {numbers} {path or ''}\n")
    bounds = np.array(missing, np.uint64).reshape(-1, 2)
    return "".join(lines).encode(), bounds


def _identity(path: str) -> str:
    """Device and number of a file as /proc/PID/maps has them."""
    about = os.stat(path)
    major = os.major(about.st_dev)
    minor = os.minor(about.st_dev)
    return f"{major:x}:{minor:x} {about.st_ino}"


def _is_in(addresses: np.ndarray, bounds: np.ndarray) -> bool:
    """Whether one of the addresses lies between bounds."""
    if not len(bounds):
        return False
    column = addresses[:, None]
    is_inside = (column >= bounds[:, 0]) & (column < bounds[:, 1])
    return bool(is_inside.any())


def _pieces(
    file: PerfFile, samples: rec.PerfSamples, rows: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """The rows by the piece of the file that they are in, some at a time."""
    for piece, of_piece in rec.groups(samples.piece[rows]):
        mine = rows[of_piece]
        for first in range(0, len(mine), _AT_ONCE):
            yield piece, mine[first : first + _AT_ONCE]


def _of_space(
    library: ctypes.PyDLL,
    handle: int,
    file: PerfFile,
    samples: rec.PerfSamples,
    mine: tuple[int, np.ndarray],
) -> Iterator[tuple[int, np.ndarray, bool]]:
    """By row the addresses of its frames, and whether they lead to the first function."""
    piece, rows = mine
    records = file.records[piece]
    copies = np.zeros(len(rows), _COPY)
    for event, of_event in rec.groups(samples.event[rows]):
        mask = file.events[event].user_registers
        _take_registers(records, mask, samples.registers_at[rows[of_event]], copies, of_event)
    copies["stack_at"] = samples.stack_at[rows]
    copies["stack_bytes"] = samples.stack_bytes[rows]
    addresses = np.zeros(len(rows) * _FRAMES_MOST, np.uint64)
    lengths, how = np.zeros(len(rows), np.uint32), np.zeros(len(rows), np.uint32)
    library.lw_unwind(
        handle,
        records.octets.ctypes.data,
        copies.ctypes.data,
        len(rows),
        addresses.ctypes.data,
        len(addresses),
        lengths.ctypes.data,
        how.ctypes.data,
    )
    ends = np.cumsum(lengths.astype(np.int64))
    for row, end, length, flags in zip(
        rows.tolist(), ends.tolist(), lengths.tolist(), how.tolist(), strict=True
    ):
        if length:
            yield row, addresses[end - length : end], bool(flags & _TO_ROOT)


def _take_registers(
    records: Records, mask: int, at: np.ndarray, copies: np.ndarray, rows: np.ndarray
) -> None:
    """The registers that perf has written, one after the other for each bit of `mask`."""
    known = 0
    for ours, of_perf in enumerate(_OF_PERF):
        if not mask >> of_perf & 1:
            continue
        known |= 1 << ours
        before = (mask & (1 << of_perf) - 1).bit_count()
        copies["registers"][rows, ours] = records.words(at + 8 * before)
    copies["known"][rows] = known


def _of_kernel(chain: bytes) -> bytes:
    """The part of a chain that is the kernel's: it comes first."""
    for at in range(0, len(chain), 8):
        word = chain[at : at + 8]
        if word == _USER_MARK:
            return chain[:at]
    return chain

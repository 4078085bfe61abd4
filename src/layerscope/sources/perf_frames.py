"""Chains of addresses as stacks of frames: where each address of `perf.data` lies, and what is
there.

Only distinct stacks are looked at. An address is that of an instruction: of all but the innermost
frame of each side (user, kernel) the one that returns is called, so one less lies within the call.
"""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from layerscope.model import cache
from layerscope.rawfile import jit_maps
from layerscope.sources import perf_file, perf_kernel
from layerscope.sources import perf_records as rec
from layerscope.sources.perf_here import here
from layerscope.sources.perf_threads import (
    ANONYMOUS,
    AddressSpace,
    Mapping,
    Object,
    Threads,
)
from layerscope.sources.stack_tree import JIT, KERNEL, UNKNOWN, FrameColumns, StackTree, unnamed

if TYPE_CHECKING:
    from layerscope.symbols import Symbols

# Instead of the number of a file.
_IN_NO_FILE, _NOWHERE = -1, -2
_PT_LOAD, _PF_X = 1, 1


class PerfStacks(Struct):
    """Frames and stacks of a file, as `Imported.stacks` has them; `of_sample` is the one of each
    sample (-1: none).
    """

    frames: dict[str, list[Any]]
    stacks: dict[str, np.ndarray]
    of_sample: np.ndarray


class _Addresses(Struct, frozen=True):
    """The addresses of distinct stacks one behind the other, innermost first: which stack, which
    space, whose side.
    """

    stack: np.ndarray
    space: np.ndarray
    address: np.ndarray
    is_kernel: np.ndarray


def stacks(
    file: perf_file.PerfFile,
    decoded: rec.Decoded,
    threads: Threads,
    space: np.ndarray,
    zero_s: float,
) -> PerfStacks:
    """The stacks of all samples; `space` is whose mappings each had, as `Threads.spaces_of` gives
    it. `zero_s`: what CLOCK_REALTIME said at zero of the file's clock, or earlier.
    """
    samples = decoded.samples
    tails, tail = np.unique(samples.tail, return_inverse=True)
    first = np.unique(space.astype(np.int64) << 32 | samples.chain, return_inverse=True)
    second = np.unique(tail << 3 | samples.tail_mode, return_inverse=True)
    pairs, of_sample = np.unique(first[1].astype(np.int64) << 32 | second[1], return_inverse=True)
    owner, ending = first[0][pairs >> 32], second[0][pairs & 0xFFFFFFFF]
    found = _addresses(
        decoded.chains,
        owner & 0xFFFFFFFF,
        owner >> 32,
        tails[ending >> 3].astype(np.uint64),
        ending & 7,
    )
    named = _Named(file, threads, zero_s)
    numbers, place = named.inlined.split(named.numbers(found))
    tree = StackTree()
    # From the outside in, and no two frames of the kernel behind each other that nobody knows.
    numbers, stack = numbers[::-1], found.stack[place][::-1]
    is_again = np.zeros(len(numbers), np.bool_)
    is_again[1:] = (
        (numbers[1:] == named.kernel) & (numbers[:-1] == named.kernel) & (stack[1:] == stack[:-1])
    )
    numbers, stack = numbers[~is_again], stack[~is_again]
    length = np.bincount(stack, minlength=len(pairs))
    begin = np.zeros(len(pairs), np.int64)
    begin[::-1] = np.append(0, np.cumsum(length[::-1])[:-1]) if len(pairs) else begin
    of_stack = tree.add(numbers, begin, length)
    return PerfStacks(
        named.frames.columns,
        tree.columns(),
        of_stack[of_sample] if len(pairs) else np.zeros(0, np.int64),
    )


def _addresses(
    chains: list[bytes],
    chain: np.ndarray,
    space: np.ndarray,
    tail: np.ndarray,
    tail_mode: np.ndarray,
) -> _Addresses:
    """The addresses of stacks, each a chain and what is added to it."""
    pieces = []
    for number, mode, added in zip(chain.tolist(), tail_mode.tolist(), tail.tolist(), strict=True):
        piece = chains[number]
        if added:
            mark = rec.CONTEXT_KERNEL if mode == rec.MODE_KERNEL else rec.CONTEXT_USER
            piece += struct.pack("<QQ", mark, added)
        pieces.append(piece)
    words = np.frombuffer(b"".join(pieces), "<u8")
    lengths = [len(piece) // 8 for piece in pieces]
    stack = np.repeat(np.arange(len(pieces)), lengths)
    is_mark = words >= rec.CONTEXTS
    is_kernel, is_user = _sides(words, stack, is_mark)
    is_first = np.ones(len(words), np.bool_)
    is_first[1:] = is_mark[:-1] | (stack[1:] != stack[:-1])
    is_address = ~is_mark & (words != 0)
    chosen = np.flatnonzero(is_address & (is_kernel | is_user))
    # Addresses of callers are those to return to, behind the call.
    is_caller = ~is_first[chosen]
    address = words[chosen] - is_caller.astype(np.uint64)
    stack = stack[chosen]
    return _Addresses(stack, space[stack], address, is_kernel[chosen])


def _sides(
    words: np.ndarray, stack: np.ndarray, is_mark: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which words are the kernel's and which the user's, by the mark before them."""
    place = np.arange(len(words))
    mark = np.where(is_mark, place, -1)
    if len(words):
        mark = np.maximum.accumulate(mark)
    has_mark = (mark >= 0) & (stack[mark] == stack)
    # A chain without marks is the user's.
    side = np.where(has_mark, words[mark], rec.CONTEXT_USER)
    return side == rec.CONTEXT_KERNEL, side == rec.CONTEXT_USER


# -- where addresses lie ---------------------------------------------------------------------------


class _InlinedNumbers(Struct):
    """Numbers of frames with inlined functions, below 0: each stands for several frames, the
    innermost first.
    """

    chains: list[list[int]] = field(default_factory=list)

    def add(self, chain: list[int]) -> int:
        """The number of such frames."""
        self.chains.append(chain)
        return -len(self.chains)

    def split(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The frames that numbers stand for, and the place of the number that each comes from."""
        is_many = np.flatnonzero(numbers < 0)
        many = numbers[is_many].tolist()
        chains = [self.chains[-1 - number] for number in many]
        lengths = np.ones(len(numbers), np.int64)
        lengths[is_many] = list(map(len, chains))
        rows = np.arange(len(numbers))
        place = np.repeat(rows, lengths)
        frames = numbers[place]
        inside = [frame for chain in chains for frame in chain]
        frames[frames < 0] = inside
        return frames, place


class _Named(Struct):
    """The frames of the addresses in a file."""

    file: perf_file.PerfFile
    threads: Threads
    zero_s: float
    frames: FrameColumns = field(default_factory=FrameColumns)
    inlined: _InlinedNumbers = field(default_factory=_InlinedNumbers)
    kernel: int = 0
    _is_here: bool = False
    _symbols: Symbols | None = None

    def __post_init__(self) -> None:
        self.kernel = self.frames.add("kernel", KERNEL)
        recorded_on = self.file.text(perf_file.HOSTNAME)
        this_host = os.uname().nodename
        self._is_here = recorded_on in ("", this_host)

    def numbers(self, found: _Addresses) -> np.ndarray:
        """The frame of each address."""
        numbers = np.zeros(len(found.address), np.int64)
        in_kernel = np.flatnonzero(found.is_kernel)
        numbers[in_kernel] = self._kernel(found.address[in_kernel])
        user = np.flatnonzero(~found.is_kernel)
        objects: dict[Object, int] = {}
        object_ = np.full(len(numbers), -1, np.int64)
        offset = np.zeros(len(numbers), np.uint64)
        for number, of_space in rec.groups(found.space[user]):
            rows = user[of_space]
            space = self.threads.spaces[number]
            placed = _placed(space.mappings, found.address[rows], objects)
            object_[rows], offset[rows] = placed
            rows = rows[object_[rows] < 0]
            is_mapped = object_[rows] == _IN_NO_FILE
            numbers[rows] = self._jit(space, found.address[rows], is_mapped)
        in_object = user[object_[user] >= 0]
        by_number = list(objects)
        for number, of_object in rec.groups(object_[in_object]):
            rows = in_object[of_object]
            numbers[rows] = self._native(by_number[number], offset[rows])
        return numbers

    def _native(self, object_: Object, offset: np.ndarray) -> np.ndarray:
        """Frames of a file with code at these places in it."""
        offsets, row = np.unique(offset, return_inverse=True)
        path = here(object_)
        address = _as_symbols_count(path, offsets) if path else offsets
        signed = _signed(address)
        if not path:
            numbers = [self._in_object(object_, at, "", None, -1) for at in signed]
            return np.array(numbers, np.int64)[row]
        build_id = bytes.fromhex(object_.build_id)
        found = self.symbols.native(path, build_id, address)
        lines = found.line.tolist()
        frames = zip(signed, found.name, found.file, lines, strict=True)
        numbers = [self._in_object(object_, *frame) for frame in frames]
        for place, chain in found.inlined.items():
            at = int(address[place])
            inside = [self._in_object(object_, at, one.name, one.file, one.line) for one in chain]
            numbers[place] = self.inlined.add([*reversed(inside), numbers[place]])
        return np.array(numbers, np.int64)[row]

    def _in_object(
        self, object_: Object, address: int, name: str, file: str | None, line: int
    ) -> int:
        return self.frames.add(
            "native",
            name or unnamed(object_.path),
            file=file,
            line=line if line >= 0 else None,
            object=object_.path,
            build_id=object_.build_id or None,
            address=address,
        )

    def _jit(self, space: AddressSpace, address: np.ndarray, is_mapped: np.ndarray) -> np.ndarray:
        """Frames of code that lies in no file; what made it may have told its names in
        perf-PID.map.

        What is not even mapped is no code: what a function without a frame pointer had in its
        place.
        """
        addresses, first, row = np.unique(address, return_index=True, return_inverse=True)
        texts = [""] * len(addresses)
        if self._is_here and len(addresses):
            began_s = self.zero_s + self.threads.processes[space.process].start_ns / 1e9
            with tempfile.TemporaryDirectory() as folder:
                names = jit_maps.take_one(space.pid, Path(folder), began_s)
                texts = list(self.symbols.jit(names, addresses).name)
        numbers = [
            self.frames.add("native", text or JIT, object=JIT, address=place)
            if text or is_code
            else self.frames.add("native", UNKNOWN)
            for text, place, is_code in zip(
                texts, _signed(addresses), is_mapped[first].tolist(), strict=True
            )
        ]
        return np.array(numbers, np.int64)[row] if len(row) else np.zeros(0, np.int64)

    def _kernel(self, address: np.ndarray) -> np.ndarray:
        """Frames of the kernel; one for all of it where its functions are not known."""
        if not len(address):
            return np.zeros(0, np.int64)
        addresses, row = np.unique(address, return_inverse=True)
        texts = perf_kernel.names(self.file, self.threads.kernel, addresses, lambda: self.symbols)
        numbers = []
        for text in texts:
            frame = self.frames.add("kernel", text, object=KERNEL) if text else self.kernel
            numbers.append(frame)
        return np.array(numbers, np.int64)[row]

    @property
    def symbols(self) -> Symbols:
        """Names of code, remembered in the user's cache."""
        if self._symbols is None:
            from layerscope.symbols import Symbols

            self._symbols = Symbols(next(iter(cache.caches(cache.SYMBOLS)), None))
        return self._symbols


def _signed(addresses: np.ndarray) -> list[int]:
    unsigned = addresses.astype(np.uint64)
    signed: list[int] = unsigned.view(np.int64).tolist()
    return signed


def _placed(
    mappings: list[Mapping], address: np.ndarray, objects: dict[Object, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The object that each address lies in (numbers are given in `objects`) and where in it."""
    if not mappings:
        return np.full(len(address), _NOWHERE, np.int64), address
    start, end, offset = (
        np.array([getattr(one, name) for one in mappings], np.uint64)
        for name in ("start", "end", "offset")
    )
    number = np.array(
        [
            _IN_NO_FILE
            if one.object.path.startswith(ANONYMOUS) and one.object.path != "[vdso]"
            else objects.setdefault(one.object, len(objects))
            for one in mappings
        ],
        np.int64,
    )
    at = np.searchsorted(start, address, side="right").astype(np.int64) - 1
    inside = (at >= 0) & (address < end[at])
    return np.where(inside, number[at], _NOWHERE), address - start[at] + offset[at]


def _as_symbols_count(path: str, offset: np.ndarray) -> np.ndarray:
    """Places in the file `path` as addresses of its symbols, by its segments."""
    address: np.ndarray = offset.copy()
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            at, size, count = (
                *struct.unpack_from("<Q", head, 32),
                *struct.unpack_from("<HH", head, 54),
            )
            file.seek(at)
            table = file.read(size * count)
        for number in range(count):
            kind, flags, begin, virtual, _, length, _, _ = struct.unpack_from(
                "<IIQQQQQQ", table, number * size
            )
            # A page that code and data share is mapped for both: only what a segment itself has
            # counts.
            if kind == _PT_LOAD and flags & _PF_X:
                inside = (offset >= begin) & (offset < begin + length)
                address[inside] = offset[inside] - np.uint64(begin) + np.uint64(virtual)
    except (OSError, struct.error, OverflowError):
        pass
    return address

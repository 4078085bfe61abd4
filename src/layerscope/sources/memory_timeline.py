"""Memory timelines that `torch.profiler`'s `export_memory_timeline` writes, plain or packed.

    NAME.raw.json.gz   [[time in ns, action, bytes, category], ...], -1: before the profile
    NAME.json[.gz]     [[time in us, ...], [[0, bytes by category, ...], ...]]
    NAME.html          a picture

A raw timeline tells of no event which block it is about. Blocks of the same size and category are
alike, so the one that was allocated first is taken for the one that is released first: what is live
is right at any time, and so is how long they lived together; only which of them lived how long is
not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import MEMORY
from layerscope.sources.imported import Imported, ImportedMemory, ImportedProcess, ImportedTrack
from layerscope.sources.memory_counters import MemoryCounters
from layerscope.sources.text_chunks import parts, unpacked

MEANING = "a memory timeline of torch.profiler (JSON)"
# By their number, as PyTorch's profiler sorts blocks; the last ones it knows nothing of.
CATEGORIES = (
    "parameters",
    "optimizer state",
    "input",
    "temporary",
    "activations",
    "gradients",
    "autograd",
    "unknown",
)
# What is done with a block. A change of its version is written twice: its bytes leave the category
# that it had and come to the one that it has.
_BEFORE, _NEW, _VERSION, _RELEASE = range(1, 5)
_RAW_COLUMNS = 4
_NO_TIME = -1
# The file does not tell which device it is about.
DEVICE = "one device"
_RAW = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]")
_TIMES = re.compile(rb"\s*\[\s*\[(?:\s*-?\d+\s*,)*\s*-?\d*\s*(\Z|\]\s*,\s*\[\s*\[\s*0\s*,)")
_EMPTY = re.compile(rb"\s*\[\s*\[\s*\]\s*,\s*\[\s*\]\s*\]\s*\Z")
_PICTURE = re.compile(rb"<title>GPU Memory Timeline HTML</title>")
_HEAD_BYTES = 1 << 16
_BETWEEN = b" \t\r\n["
_MOST_NS, _MOST_BYTES = 1 << 61, 1 << 56
# What is read of a file, unpacked: some gigabytes of memory, and more than any profiler writes.
_MOST_TEXT_BYTES, _MOST_ROWS = 1 << 29, 50_000_000
# Of one list of numbers, without blanks.
_MOST_LIST_BYTES = 1 << 20


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a timeline, or the picture of one."""
    text = unpacked(head[:_HEAD_BYTES])
    found = _PICTURE.search(text[:_HEAD_BYTES]) or _RAW.match(text) or _EMPTY.match(text)
    return found is not None or _is_times(text)


def _is_times(text: bytes) -> bool:
    """Whether it begins with a list of times, and not with the first of many lists."""
    found = _TIMES.match(text)
    return found is not None and (found[1] != b"" or text.count(b",") >= _RAW_COLUMNS)


def read(path: Path) -> Imported:
    """The timeline at `path`. ReadError when it cannot be read."""
    pieces = _bounded(path)
    first = next(pieces, b"")
    pieces = chain([first], pieces)
    if _PICTURE.search(first[:_HEAD_BYTES]):
        raise ReadError(
            f"{path} is a picture of a memory timeline, without its numbers: export it by a name "
            "that ends with .raw.json.gz"
        )
    if _RAW.match(first):
        return _raw(path, pieces)
    return _sums(path, pieces)


def _bounded(path: Path) -> Iterator[bytes]:
    """The parts of a file, which may be packed a thousand times smaller than it is."""
    size = 0
    for piece in parts(path):
        size += len(piece)
        if size > _MOST_TEXT_BYTES:
            raise ReadError(
                f"{path} is refused: unpacked it has more than {_MOST_TEXT_BYTES >> 20:,} MB. "
                "Profile fewer steps"
            )
        yield piece


def _raw(path: Path, pieces: Iterator[bytes]) -> Imported:
    """The blocks of a raw timeline."""
    lists = _Lists(path, pieces)
    found = [np.zeros((0, _RAW_COLUMNS), np.int64)]
    count = 0
    for lines in lists:
        found.append(_numbers(path, lines, _RAW_COLUMNS))
        count += len(found[-1])
        if count > _MOST_ROWS:
            raise ReadError(
                f"{path} is refused: it has more than {_MOST_ROWS:,} events. Profile fewer steps"
            )
    rows = np.concatenate(found)
    kept, problems = _possible(rows, lists.is_whole)
    is_before = kept[:, 0] == _NO_TIME
    first_ns = int(kept[~is_before, 0].min(initial=_MOST_NS)) if not is_before.all() else 0
    at_ns = np.where(is_before, 0, kept[:, 0] - first_ns)
    order = np.argsort(at_ns, kind="stable")
    at_ns, action, size, category = (at_ns[order], *kept[order, 1:].T)
    names: dict[str, int] = {DEVICE: 0}
    counters = MemoryCounters("PyTorch", names)
    for number, name in enumerate(CATEGORIES):
        of_category = np.flatnonzero(category == number)
        live = np.cumsum(size[of_category])
        counters.add(_counter(name), *_last_of_each(at_ns[of_category], live))
    counters.add("allocated_bytes", *_last_of_each(at_ns, np.cumsum(size)))
    block, is_release, alike = _blocks(size, category)
    if alike:
        problems.append(_alike(alike))
    memory = _joined_versions(at_ns, action, size, block, is_release)
    realtime_ns = first_ns if first_ns else None
    return _imported(names, counters, memory, problems, realtime_ns)


def _counter(category: str) -> str:
    return f"{category.replace(' ', '_')}_bytes"


def _possible(rows: np.ndarray, is_whole: bool) -> tuple[np.ndarray, list[Problem]]:
    """The rows that can be, and what is to be said of the others."""
    at_ns, action, size, category = rows.T
    is_kept = (
        (at_ns >= _NO_TIME)
        & (at_ns < _MOST_NS)
        & (np.abs(size) < _MOST_BYTES)
        & (action >= _BEFORE)
        & (action <= _RELEASE)
        & (category >= 0)
        & (category < len(CATEGORIES))
    )
    problems = []
    rejected = int(np.count_nonzero(~is_kept))
    if rejected:
        what = f"{rejected:,} events of the timeline have numbers that cannot be"
        problems.append(Problem(MEMORY, "events_rejected", what, "export it again", "these events"))
    if not is_whole:
        problems.append(cut())
    is_kept &= size != 0
    return rows[is_kept], problems


def cut() -> Problem:
    """What is said of a file that ends too early."""
    what = "the file is cut: what came after its end is missing"
    return Problem(MEMORY, "file_cut", what, "copy it again, or record again", "the end of it")


def _alike(count: int) -> Problem:
    what = (
        f"{count:,} times one of several blocks of the same size and category was released, and "
        "the timeline does not tell which"
    )
    remedy = "record by layerscope run --layers=+memory, or a snapshot of PyTorch's memory"
    lost = "how long each of them lived: only how long they did together"
    return Problem(MEMORY, "blocks_alike", what, remedy, lost)


def _blocks(size: np.ndarray, category: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """By event the number of its block and whether it releases it; and how often there were
    several that could have been it.

    Of blocks that are alike, the first allocation and the first release are of one block.
    """
    is_release = size < 0
    alike_ones = np.abs(size) * len(CATEGORIES) + category
    _, kind = np.unique(alike_ones, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    release = is_release[order]
    released = _counted(kind[order], release)
    allocated = _counted(kind[order], ~release)
    ordinal = np.empty(len(order), np.int64)
    ordinal[order] = np.where(release, released, allocated)
    alike = int(np.count_nonzero(release & (allocated > released)))
    most = int(ordinal.max(initial=0)) + 1
    return kind * most + ordinal, is_release, alike


def _counted(group: np.ndarray, is_counted: np.ndarray) -> np.ndarray:
    """How many of its group, which stands together, are counted up to each row."""
    count = np.append(0, np.cumsum(is_counted))
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    lengths = np.diff(np.append(begins, len(group)))
    of_group: np.ndarray = count[1:] - np.repeat(count[begins], lengths)
    return of_group


def _joined_versions(
    at_ns: np.ndarray,
    action: np.ndarray,
    size: np.ndarray,
    block: np.ndarray,
    is_release: np.ndarray,
) -> ImportedMemory:
    """The events without the changes of versions: a block has one number from its allocation to its
    release.
    """
    _, block = np.unique(block, return_inverse=True)
    after = np.arange(int(block.max(initial=-1)) + 1)
    is_change = action == _VERSION
    # Both halves of a change follow each other: what left and what came.
    left = np.flatnonzero(is_change[:-1] & is_release[:-1] & is_change[1:] & ~is_release[1:])
    left = left[size[left] == -size[left + 1]]
    after[block[left + 1]] = block[left]
    # A block has as many numbers as versions: each time the way to the first one is half as long.
    for _ in range(len(after).bit_length()):
        further = after[after]
        if np.array_equal(further, after):
            break
        after = further
    is_joined = np.zeros(len(block), np.bool_)
    is_joined[left] = is_joined[left + 1] = True
    kept = ~is_joined
    return ImportedMemory(
        at_ns=at_ns[kept],
        block=after[block[kept]],
        bytes=np.abs(size[kept]),
        is_release=is_release[kept],
        device=0,
    )


def _sums(path: Path, pieces: Iterator[bytes]) -> Imported:
    """The counters of a timeline that has sums only."""
    text = b"".join(pieces).translate(None, b" \t\r\n")
    times, border, sizes = text.partition(b"],[[")
    if not border and text != b"[[],[]]":
        raise ReadError(f"{path} is damaged or cut: copy it again, or export it again")
    at_us = _numbers(path, times.lstrip(b"[").replace(b",", b"\n"), 1)[:, 0] if border else None
    names: dict[str, int] = {}
    counters = MemoryCounters("PyTorch", names)
    if at_us is None or not len(at_us):
        return _imported(names, counters, ImportedMemory(), [], None)
    rows = sizes.removesuffix(b"]]]").replace(b"],[", b"\n")
    columns = len(CATEGORIES) + 1
    values = _numbers(path, rows, columns)
    is_possible = len(values) == len(at_us) and (at_us >= 0).all() and text.endswith(b"]]]")
    if not is_possible or (at_us >= _MOST_NS // 1000).any():
        raise ReadError(f"{path} is damaged or cut: copy it again, or export it again")
    at_ns = at_us * 1000
    order = np.argsort(at_ns, kind="stable")
    first_ns = int(at_ns.min())
    at_ns, values = at_ns[order] - first_ns, values[order]
    for number, name in enumerate(CATEGORIES):
        counters.add(_counter(name), at_ns, values[:, number + 1])
    counters.add("allocated_bytes", at_ns, values.sum(axis=1))
    what = "the timeline has the sums of categories, not the blocks"
    remedy = "export it by a name that ends with .raw.json.gz"
    problem = Problem(MEMORY, "sums_only", what, remedy, "blocks: sizes and how long they lived")
    return _imported(names, counters, ImportedMemory(), [problem], first_ns)


def _imported(
    names: dict[str, int],
    counters: MemoryCounters,
    memory: ImportedMemory,
    problems: list[Problem],
    realtime_ns: int | None,
) -> Imported:
    return Imported(
        names=list(names),
        tracks=[ImportedTrack(0, "memory timeline")],
        processes=[ImportedProcess()],
        moments=counters.moments(),
        memory=memory,
        realtime_ns=realtime_ns,
        problems=problems,
    )


def _last_of_each(at_ns: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of values of one moment the last one."""
    is_last = np.diff(at_ns, append=-1) != 0
    return at_ns[is_last], value[is_last]


class _Lists:
    """A list of lists of numbers as lines with commas, some at a time. `is_whole`: the file ended
    as it should.
    """

    def __init__(self, path: Path, pieces: Iterator[bytes]) -> None:
        self._path = path
        self._pieces = pieces
        self.is_whole = False

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        for piece in self._pieces:
            text = rest + piece.translate(None, _BETWEEN)
            end = text.rfind(b"],") + len(b"],")
            if end > 1:
                yield text[:end].replace(b"],", b"\n")
                text = text[end:]
            if len(text) > _MOST_LIST_BYTES:
                raise _damaged(self._path, "a list in it has no end")
            rest = text
        last, end_of_lists, _ = rest.partition(b"]]")
        if end_of_lists:
            self.is_whole = True
            yield last


def _numbers(path: Path, lines: bytes, columns: int) -> np.ndarray:
    """Lines of whole numbers as rows."""
    if not lines.strip():
        return np.zeros((0, columns), np.int64)
    names = [str(number) for number in range(columns)]
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(lines),
            pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(lines) + 1),
            pa.csv.ParseOptions(quote_char=False),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.int64()), null_values=[], check_utf8=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise _damaged(path, "not all of it are whole numbers") from error
    return np.column_stack([table[name].to_numpy() for name in names])


def _damaged(path: Path, how: str) -> ReadError:
    return ReadError(f"{path} is damaged ({how}): copy it again, or export it again")

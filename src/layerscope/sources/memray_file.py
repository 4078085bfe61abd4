"""Files of memray (`memray run`), whose format is its own: memray itself, where it is installed,
says what is in them. It is started as a command and never imported.

What it says is what was allocated when most of it was (`memray transform csv`): by stack the number
of blocks and their bytes, without times. The blocks of a stack are given the mean of their size.
"""

from __future__ import annotations

import contextlib
import csv
import re
import subprocess
import sys
import tempfile
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import msgspec
import numpy as np
from msgspec import Struct, field

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import MEMORY
from layerscope.model.memory import ALLOCATORS, CPU, OTHER
from layerscope.model.stored_json import Size, decoded
from layerscope.sources.imported import Imported, ImportedMemory, ImportedProcess, ImportedTrack
from layerscope.sources.memory_counters import MemoryCounters

MEANING = "a file of memray"
_START = re.compile(rb"(\x04\x22\x4d\x18.{0,32}?)?memray", re.DOTALL)
_TIMEOUT_S = 1800
# Of more blocks than these there is one for each stack, with the bytes of all.
_MOST_BLOCKS = 10_000_000
_MOST_NUMBER = 1 << 53
# Where memray itself and what starts the program stands.
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3(\.\d+)?/|^<")
_FIELDS = ["allocator", "num_allocations", "size", "tid", "thread_name", "stack_trace"]
_LINE_LETTERS = 200
_REMEDY = "install memray (pip install memray) beside layerscope, or where PATH names it"


class _Metadata(msgspec.Struct):
    start_time: str = ""
    end_time: str = ""
    peak_memory: Size = 0
    pid: Size = 0
    command_line: str = ""


class _Statistics(msgspec.Struct):
    total_num_allocations: Size = 0
    total_bytes_allocated: Size = 0
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Stacks(Struct):
    """What each stack held, as columns; `line` and `thread`: their number."""

    count: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    allocator: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    rejected: int = 0


def recognises(head: bytes) -> bool:
    """Whether a file that begins so was written by memray."""
    return _START.match(head) is not None


def read(path: Path) -> Imported:
    """What memray says of its file `path`. ReadError when it is not installed or cannot read it."""
    with tempfile.TemporaryDirectory(prefix="layerscope-memray-") as folder:
        told = Path(folder) / "stats.json"
        rows = Path(folder) / "rows.csv"
        _ask(path, ["transform", "-f", "-o", str(rows), "csv"], rows)
        # Of a file that memray summed up itself (--aggregate) there are none.
        with contextlib.suppress(ReadError):
            _ask(path, ["stats", "--json", "-f", "-o", str(told)], told)
        statistics = _statistics(told)
        names: dict[str, int] = {}
        threads: dict[str, int] = {}
        stacks = _stacks(rows, names, threads)
    return _imported(statistics, stacks, names, list(threads))


def command() -> list[str]:
    """How memray is started; empty: it is not there."""
    found = which("memray")
    if found:
        return [found]
    return [sys.executable, "-m", "memray"] if find_spec("memray") else []


def _ask(path: Path, words: list[str], answer: Path) -> None:
    """Have memray write what it knows of `path` into the file `answer`."""
    start = command()
    if not start:
        raise ReadError(f"{path} was written by memray, which alone can read it: {_REMEDY}")
    try:
        done = subprocess.run(
            [*start, *words, "--", str(path.absolute())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReadError(f"{path} cannot be read, because memray failed: {error}") from error
    if done.returncode or not answer.exists():
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise ReadError(
            f"{path} cannot be read by {' '.join(start)}: {lines[-1][:200]}. Record again, or use "
            "the version of memray that wrote it"
        )


def _statistics(told: Path) -> _Statistics:
    """What memray knows of the whole run, as far as it says that."""
    with contextlib.suppress(OSError, ValueError):
        return decoded(told.read_bytes(), _Statistics)
    return _Statistics()


def _stacks(rows: Path, names: dict[str, int], threads: dict[str, int]) -> _Stacks:
    """The rows of the table that memray wrote."""
    found = _Stacks()
    # A stack may be long.
    csv.field_size_limit(1 << 24)
    with rows.open(newline="", encoding="utf-8", errors="replace") as file:
        table = csv.DictReader(file)
        try:
            if not set(_FIELDS) <= set(table.fieldnames or ()):
                raise ReadError(
                    "memray writes another table than is known: use memray 1.12 or newer"
                )
            for row in table:
                _add(found, row, names, threads)
        except csv.Error as error:
            raise ReadError(f"what memray wrote is no table ({error}): record again") from error
    return found


def _add(
    found: _Stacks, row: dict[str, str], names: dict[str, int], threads: dict[str, int]
) -> None:
    count, size = _number(row["num_allocations"]), _number(row["size"])
    if count < 1 or size < 0:
        found.rejected += 1
        return
    thread = row["thread_name"] or row["tid"] or "thread"
    allocator = (row["allocator"] or "malloc").lower()
    found.count.append(count)
    found.bytes.append(size)
    found.line.append(_line(row["stack_trace"] or "", names))
    known = allocator if allocator in ALLOCATORS else OTHER
    found.allocator.append(ALLOCATORS.index(known))
    found.thread.append(threads.setdefault(thread, len(threads)))


def _number(text: str | None) -> int:
    """A whole number; -1 where there is none."""
    if text is None or not text.isascii() or not text.isdigit():
        return -1
    number = int(text) if len(text) < 20 else _MOST_NUMBER
    return number if number < _MOST_NUMBER else -1


def _line(stack: str, names: dict[str, int]) -> int:
    """The number of the innermost line of the program in a stack; else of a library, -1: none."""
    first = -1
    for frame in stack.split("|"):
        parts = frame.rsplit(";", 2)
        if len(parts) < 3 or not parts[2].isdigit() or parts[2] == "0":
            continue
        is_python = re.search(r"\.pyw?$|^<", parts[1]) is not None
        if not is_python or "/memray/" in parts[1]:
            continue
        text = f"{parts[1]}:{parts[2]}"[-_LINE_LETTERS:]
        if not _LIBRARY.search(parts[1]):
            return names.setdefault(text, len(names))
        if first < 0 and not parts[1].startswith("<frozen "):
            first = names.setdefault(text, len(names))
    return first


def _imported(
    statistics: _Statistics, stacks: _Stacks, names: dict[str, int], threads: list[str]
) -> Imported:
    about = statistics.metadata
    start_ns, end_ns = _time_ns(about.start_time), _time_ns(about.end_time)
    dur_ns = max(end_ns - start_ns, 1) if start_ns and end_ns else 1
    blocks = _blocks(stacks, names)
    counters = MemoryCounters("memray", names)
    if statistics.total_num_allocations:
        ends = np.array([0, dur_ns], np.int64)
        allocated = np.array([0, statistics.total_bytes_allocated], np.int64)
        counters.add("allocated_bytes in all", ends, allocated)
        counters.mark(
            f"memray: {about.peak_memory:,} bytes at the peak, "
            f"{statistics.total_num_allocations:,} allocations of "
            f"{statistics.total_bytes_allocated:,} bytes in all",
            0,
        )
    return Imported(
        names=list(names),
        tracks=[ImportedTrack(0, _thread(name)) for name in threads] or [ImportedTrack(0, "main")],
        processes=[ImportedProcess(pid=min(about.pid, (1 << 31) - 1))],
        moments=counters.moments(),
        memory=blocks,
        realtime_ns=start_ns or None,
        command=about.command_line.split(),
        problems=_problems(stacks),
    )


def _thread(name: str) -> str:
    return f"thread {name}" if name.startswith("0x") else name


def _blocks(stacks: _Stacks, names: dict[str, int]) -> ImportedMemory:
    """The blocks of each stack, all of them allocated where the file begins."""
    count = np.array(stacks.count, np.int64)
    size = np.array(stacks.bytes, np.int64)
    if float(count.sum()) > _MOST_BLOCKS:
        count = np.minimum(count, 1)
    stack = np.repeat(np.arange(len(count)), count)
    mean = size // np.maximum(count, 1)
    # The first of them has what is left, so that the bytes of the stack are right.
    bytes_ = mean[stack]
    first = np.cumsum(count) - count
    bytes_[first] += size - mean * count
    return ImportedMemory(
        at_ns=np.zeros(len(stack), np.int64),
        block=np.arange(len(stack)),
        bytes=bytes_,
        track=np.array(stacks.thread, np.int32)[stack],
        line=np.array(stacks.line, np.int32)[stack],
        device=names.setdefault(CPU, len(names)),
        allocator=np.array(stacks.allocator, np.uint8)[stack],
    )


def _problems(stacks: _Stacks) -> list[Problem]:
    what = "memray tells what was allocated when most of it was, and not when each block was"
    remedy = "record by layerscope run --layers=+memory"
    found = [Problem(MEMORY, "peak_only", what, remedy, "when blocks were allocated and released")]
    if float(sum(stacks.count)) > _MOST_BLOCKS:
        what = f"the blocks of a stack are one: there are {sum(stacks.count):,}"
        found.append(Problem(MEMORY, "blocks_joined", what, remedy, "the number of blocks"))
    if stacks.rejected:
        what = f"{stacks.rejected:,} rows that memray wrote have numbers that cannot be"
        found.append(Problem(MEMORY, "events_rejected", what, "record again", "these rows"))
    return found


def _time_ns(text: str) -> int:
    """A time as memray writes it; 0: none."""
    try:
        seconds = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0
    return int(seconds * 1e6) * 1000 if 0 < seconds < 1 << 32 else 0

"""Snapshots of the memory of GPUs that PyTorch writes (`torch.cuda.memory._dump_snapshot`): a
pickle of what its allocator did (`device_traces`, after `_record_memory_history`) and of what it
holds (`segments`). It is never given to `pickle` (`plain_pickle`).

Sizes are those that the program asked for. A block ends when the program releases it, also where
the allocator keeps it until another stream has done its work. What was allocated before the history
began is known from its release, or from the segments: its allocation is put where the history
begins.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import MEMORY
from layerscope.sources.imported import Imported, ImportedMemory, ImportedProcess, ImportedTrack
from layerscope.sources.memory_counters import MemoryCounters
from layerscope.sources.snapshot_records import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OUT_OF_MEMORY,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SNAPSHOT,
    SnapshotRecords,
    integer,
)

MEANING = "a snapshot of PyTorch's memory (pickle)"
_START = re.compile(rb"\x80[\x00-\x05]|[\](}]")
_RECOGNISED = re.compile(rb"device_traces|segment_type|\bsegments\b|total_size")
_PIECE_BYTES = 1 << 22
_GZIP = b"\x1f\x8b"
_MOST_US, _MOST_BYTES = (1 << 61) // 1000, 1 << 50
_MOST_DEVICES, _MOST_MARKS = 1 << 8, 1000
# Between events without a time, which follow each other; and before the first one.
_STEP_NS = 1000
# Devices may have the same addresses.
_ADDRESS_BITS = 54


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is such a snapshot."""
    return _START.match(head) is not None and _RECOGNISED.search(head) is not None


def read(path: Path) -> Imported:
    """The blocks in the snapshot `path`, which may be packed with gzip. ReadError when it cannot be
    read, or is a pickle of anything else than plain data.
    """
    names: dict[str, int] = {}
    records = SnapshotRecords(_pieces(path), str(path), names)
    devices = _devices(records)
    starts_ns = [one.at_ns[0] for one in devices if len(one.at_ns)]
    has_times = all(one.has_times for one in devices)
    # What was there before lies before the first event.
    first_ns = int(min(starts_ns)) - _STEP_NS if starts_ns else 0
    counters = MemoryCounters("PyTorch", names)
    problems = []
    parts = []
    for track, device in enumerate(devices):
        device.at_ns -= first_ns
        parts.append(_blocks(device, track, names))
        _count(device, track, parts[-1], counters)
        problems += _told(device)
    if not has_times:
        problems.append(_no_times())
    return Imported(
        names=list(names),
        tracks=[ImportedTrack(0, device.name) for device in devices] or [ImportedTrack(0, "cuda")],
        processes=[ImportedProcess()],
        moments=counters.moments(),
        memory=_merged(parts),
        realtime_ns=first_ns if has_times and starts_ns else None,
        problems=problems,
    )


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as plain:
            is_packed = plain.read(2) == _GZIP
        with gzip.open(path, "rb") if is_packed else path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ReadError(f"{path} is damaged ({error}): copy it again") from error
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}") from error


class _Device(Struct):
    """What happened on one device, in its order, and what it held at the end.

    `changes`: the rows that allocate or release, each once. `early`: how many blocks were there
    before the history began, and how many bytes.
    """

    name: str
    at_ns: np.ndarray
    action: np.ndarray
    address: np.ndarray
    size: np.ndarray
    line: np.ndarray
    free: np.ndarray
    blocks: dict[str, np.ndarray]
    reserved: int
    has_segments: bool
    has_times: bool = True
    early: tuple[int, int] = (0, 0)
    changes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        self.changes = _changes(self)


def _devices(records: SnapshotRecords) -> list[_Device]:
    """All devices of which anything is told."""
    traces = _list(records.root.get("device_traces"))[:_MOST_DEVICES]
    segments: dict[int, list[dict[str, Any]]] = {}
    for segment in _list(records.root.get("segments")):
        if type(segment) is dict:
            number = max(integer(segment.get("device")), 0)
            if number < _MOST_DEVICES:
                segments.setdefault(number, []).append(segment)
    found = []
    for number in range(max(len(traces), max(segments, default=-1) + 1)):
        trace = traces[number] if number < len(traces) else None
        events = records.events_of(trace)
        of_device = segments.get(number, [])
        if len(events["action"]) or of_device:
            found.append(_device(number, events, of_device, records))
    return found


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _device(
    number: int,
    events: dict[str, np.ndarray],
    segments: list[dict[str, Any]],
    records: SnapshotRecords,
) -> _Device:
    time_us = events["time_us"]
    has_times = not len(time_us) or bool((time_us > 0).any())
    if has_times:
        possible = np.where((time_us > 0) & (time_us < _MOST_US), time_us, 0)
        # In the order of the history, whatever the clock did.
        at_ns = np.maximum.accumulate(possible) * 1000
        first = at_ns[at_ns > 0][:1]
        at_ns = np.maximum(at_ns, first) if len(first) else at_ns
    else:
        at_ns = np.arange(len(time_us)) * _STEP_NS
    size = np.where((events["size"] >= 0) & (events["size"] < _MOST_BYTES), events["size"], 0)
    reserved = [_size(segment.get("total_size")) for segment in segments]
    return _Device(
        name=f"cuda:{number}",
        at_ns=at_ns,
        action=events["action"],
        address=events["address"],
        size=size,
        line=events["line"],
        free=events["free"],
        blocks=_live_blocks(segments, records),
        reserved=sum(reserved),
        has_segments=bool(segments),
        has_times=has_times,
    )


def _size(value: Any) -> int:
    size = integer(value)
    return size if 0 <= size < _MOST_BYTES else 0


def _live_blocks(segments: list[dict[str, Any]], records: SnapshotRecords) -> dict[str, np.ndarray]:
    """What the program held at the end: address, size and line."""
    address, size, line = ([np.zeros(0, np.int64)] for _ in range(3))
    for segment in segments:
        blocks = records.blocks_of(segment.get("blocks"))
        sizes = np.clip(blocks["size"], 0, _MOST_BYTES)
        # Blocks lie one behind the other; older versions do not say where.
        behind = integer(segment.get("address")) + np.cumsum(sizes) - sizes
        at = np.where(blocks["address"] < 0, behind, blocks["address"])
        rows = np.flatnonzero(blocks["is_live"])
        requested = blocks["requested"]
        is_told = (requested >= 0) & (requested < _MOST_BYTES)
        address.append(at[rows])
        size.append(np.where(is_told, requested, sizes)[rows])
        line.append(blocks["line"][rows])
    return {
        "address": np.concatenate(address),
        "size": np.concatenate(size),
        "line": np.concatenate(line),
    }


def _blocks(device: _Device, track: int, names: dict[str, int]) -> ImportedMemory:
    """Allocations and releases of one device, those of before the history first."""
    rows = device.changes
    address, is_release = device.address[rows], device.action[rows] != ALLOC
    early = _early(device, rows, address, is_release)
    device.early = len(early["size"]), int(early["size"].sum())
    count = len(early["size"])
    number = names.setdefault(device.name, len(names))
    return ImportedMemory(
        at_ns=np.concatenate([np.zeros(count, np.int64), device.at_ns[rows]]),
        block=np.concatenate([early["address"], address]) + (track << _ADDRESS_BITS),
        bytes=np.concatenate([early["size"], device.size[rows]]),
        is_release=np.concatenate([np.zeros(count, np.bool_), is_release]),
        track=track,
        line=np.concatenate([early["line"], device.line[rows]]).astype(np.int32),
        device=number,
    )


def _changes(device: _Device) -> np.ndarray:
    """The events that allocate or release: of a release that is written twice, when it was asked
    for and when it was done, the first.
    """
    action = device.action
    is_release = (action == FREE_REQUESTED) | (action == FREE_COMPLETED)
    rows = np.flatnonzero(((action == ALLOC) | is_release) & (device.address >= 0))
    order, same = _by_address(device.address[rows])
    ordered = action[rows][order]
    asked = np.append(False, same & (ordered[:-1] == FREE_REQUESTED))
    first = np.append(True, ~same)
    has_requests = bool((action == FREE_REQUESTED).any())
    is_done = (ordered == FREE_COMPLETED) & (asked | (first[: len(ordered)] & has_requests))
    kept = np.ones(len(rows), np.bool_)
    kept[order[is_done]] = False
    changes: np.ndarray = rows[kept]
    return changes


def _by_address(address: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order by address and then time, and which have the same one as the next."""
    order = np.argsort(address, kind="stable")
    ordered = address[order]
    return order, ordered[1:] == ordered[:-1]


def _early(
    device: _Device, rows: np.ndarray, address: np.ndarray, is_release: np.ndarray
) -> dict[str, np.ndarray]:
    """The blocks of before the history: those that are released first, and those that were there at
    the end and of which it tells nothing.
    """
    order, same = _by_address(address)
    is_first = np.append(np.ones(min(len(order), 1), np.bool_), ~same)
    released = order[is_first & is_release[order]]
    held = device.blocks
    _, once = np.unique(held["address"], return_index=True)
    untold = once[~np.isin(held["address"][once], address)]
    no_line = np.full(len(released), -1, np.int64)
    return {
        "address": np.concatenate([address[released], held["address"][untold]]),
        "size": np.concatenate([device.size[rows[released]], held["size"][untold]]),
        "line": np.concatenate([no_line, held["line"][untold]]),
    }


def _count(device: _Device, track: int, memory: ImportedMemory, counters: MemoryCounters) -> None:
    """What was allocated, reserved and unused of a device over time; marks where memory ran out and
    where most of it was allocated.
    """
    count = len(memory) - device.early[0]
    changes = np.zeros(len(device.at_ns), np.int64)
    rows = device.changes
    signed = np.where(memory.column("is_release"), -1, 1) * memory.column("bytes")
    changes[rows] = signed[len(memory) - count :]
    allocated = device.early[1] + np.cumsum(changes)
    is_segment = np.isin(device.action, (SEGMENT_ALLOC, SEGMENT_FREE))
    sign = np.where(device.action == SEGMENT_FREE, -1, 1)
    segments = np.cumsum(np.where(is_segment, sign * device.size, 0))
    segments = np.append(0, segments)
    if device.has_segments:
        reserved = np.maximum(segments + (device.reserved - segments[-1]), 0)
    else:
        reserved = segments - min(int(segments.min()), 0)
    at_ns, allocated = np.append(0, device.at_ns), np.append(device.early[1], allocated)
    name = device.name
    is_last = np.diff(at_ns, append=-1) != 0  # of events of one moment
    counters.add(f"allocated_bytes of {name}", at_ns[is_last], allocated[is_last], track)
    if reserved.any():
        unused = np.maximum(reserved - allocated, 0)
        counters.add(f"reserved_bytes of {name}", at_ns[is_last], reserved[is_last], track)
        counters.add(f"unused_bytes of {name}", at_ns[is_last], unused[is_last], track)
        _mark_peak(name, at_ns, allocated, reserved, counters, track)
    _mark_failures(device, counters, track)


def _mark_peak(
    name: str,
    at_ns: np.ndarray,
    allocated: np.ndarray,
    reserved: np.ndarray,
    counters: MemoryCounters,
    track: int,
) -> None:
    """How much was reserved and not allocated where most was allocated."""
    peak = int(np.argmax(allocated))
    most, of = int(allocated[peak]), int(reserved[peak])
    text = (
        f"peak of {name}: {most:,} bytes allocated, {of:,} reserved, "
        f"{max(of - most, 0):,} of them unused (fragments, and what is kept for later)"
    )
    counters.mark(text, int(at_ns[peak]), track)


def _mark_failures(device: _Device, counters: MemoryCounters, track: int) -> None:
    """Where memory ran out, and where snapshots were made."""
    failed = np.flatnonzero(device.action == OUT_OF_MEMORY)
    for row in failed[:_MOST_MARKS].tolist():
        size, free = int(device.size[row]), int(device.free[row])
        rest = f", {free:,} were free" if free >= 0 else ""
        text = f"out of memory on {device.name}: {size:,} bytes asked for{rest}"
        at_ns = int(device.at_ns[row])
        counters.mark(text, at_ns, track)
    made = np.flatnonzero(device.action == SNAPSHOT)
    for row in made[:_MOST_MARKS].tolist():
        at_ns = int(device.at_ns[row])
        counters.mark(f"snapshot of {device.name}", at_ns, track)


def _told(device: _Device) -> list[Problem]:
    """What is not known of a device."""
    found = []
    count, size = device.early
    if not len(device.at_ns):
        what = f"the snapshot has no history of {device.name}: only what it held then is known"
        remedy = "call torch.cuda.memory._record_memory_history() before, with enabled='all'"
        lost = "when blocks were allocated and released"
        found.append(Problem(MEMORY, "no_history", what, remedy, lost))
    elif count:
        what = (
            f"{count:,} blocks of {device.name} ({size:,} bytes) were allocated before the history "
            "in the snapshot begins: they are shown from there on"
        )
        remedy = "call torch.cuda.memory._record_memory_history() earlier, with more max_entries"
        found.append(
            Problem(MEMORY, "history_begins_late", what, remedy, "when they were allocated")
        )
    return found


def _no_times() -> Problem:
    what = "the snapshot has no times: its events are shown a microsecond apart, in their order"
    remedy = "write it by PyTorch 2.2 or newer"
    return Problem(MEMORY, "no_times", what, remedy, "how long blocks lived")


def _merged(parts: list[ImportedMemory]) -> ImportedMemory:
    """The events of all devices in the order of time."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return ImportedMemory()
    at_ns = np.concatenate([part.at_ns for part in parts])
    order = np.argsort(at_ns, kind="stable")
    names = ("block", "bytes", "is_release", "track", "line", "device")
    columns = {name: np.concatenate([part.column(name) for part in parts])[order] for name in names}
    return ImportedMemory(at_ns=at_ns[order], **columns)

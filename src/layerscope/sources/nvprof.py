"""Databases of nvprof and the NVIDIA Visual Profiler (`.nvvp`): kernels, copies and fills by
stream, calls of the runtime and the driver by thread, and the ranges of NVTX.

Texts are numbers into `StringTable`. Calls have the number that CUPTI gives a function (`cbid`).
Times are ns since 1970. A thread has no number of the system here, only one of pthreads, cut to 32
bits.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.model.events import Problem
from layerscope.model.layers import GPU, KINDS, RANGES
from layerscope.sources.imported import Imported, ImportedMoments
from layerscope.sources.kineto_meaning import EVENT, KERNEL, MEMCPY, MEMSET, SYNC
from layerscope.sources.nvidia_names import (
    OVERHEADS,
    SYNC_KINDS,
    copy_name,
    driver_call,
    fill_name,
    runtime_call,
)
from layerscope.sources.span_rows import (
    MOST_NS,
    FoundTracks,
    SpanRows,
    by_distinct,
    kinds_of_calls,
    lanes,
)
from layerscope.sources.sqlite_rows import (
    MAGIC,
    NONE,
    SqliteTables,
    by_value,
    or_none,
    triples,
)
from layerscope.symbols.demangling import Demangler

MEANING = "a database of nvprof (.nvvp)"
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_SIGNS = (b"_id_ INTEGER PRIMARY KEY AUTOINCREMENT", _ACTIVITY.encode())
_TASK = KINDS.index("task")
_SHAPE = "gridX gridY gridZ blockX blockY blockZ"
_KERNELS = ("CONCURRENT_KERNEL", "KERNEL", "CDP_KERNEL")
_GRID = ("grid", "block", "registers per thread", "shared memory")
_BYTES = ("bytes",)
_NO_NAME = ("-- null --", "")
_INSTANT, _BEGIN, _END = 1, 2, 4
_PROCESS, _THREAD = 1, 2
_OBJECT = struct.Struct("<II")
_READ = (
    *_KERNELS,
    *("MEMCPY", "MEMCPY2", "MEMSET", "SYNCHRONIZATION", "RUNTIME", "DRIVER", "OVERHEAD", "MARKER"),
)
_OF_TIME = {"start", "timestamp"}


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a database of nvprof."""
    return head.startswith(MAGIC) and all(word in head for word in _SIGNS)


def read(path: Path) -> Imported:
    """What is in the database at `path`, which may be packed with gzip."""
    with SqliteTables(path) as tables:
        return _Database(tables).imported()


class _Database(Struct):
    """Reads the tables one after the other into `spans`."""

    tables: SqliteTables
    spans: SpanRows = field(default_factory=SpanRows)
    tracks: FoundTracks = field(default_factory=FoundTracks)
    texts: dict[int, str] = field(default_factory=dict)
    moments: ImportedMoments = field(default_factory=ImportedMoments)
    unpaired: int = 0

    def imported(self) -> Imported:
        """All of it."""
        self.texts = self.tables.mapping("StringTable", "_id_", "value")
        self._name_processes()
        self._add_calls("RUNTIME", runtime_call)
        self._add_calls("DRIVER", driver_call)
        self._add_markers()
        self._add_overheads()
        self._add_work()
        first_ns = self.spans.first_ns()
        found = self.spans.imported(self.tracks, first_ns)
        found.moments = replace(self.moments, at_ns=self.moments.at_ns - first_ns)
        found.realtime_ns = first_ns or None
        found.problems += [*self.tables.problems(), *self._problems()]
        found.names = self._demangled(found.names)
        rank = 0 if len(found.processes) <= 1 else None
        found.processes = [replace(one, rank=rank) for one in found.processes]
        if about := self._devices():
            found.processes[0] = replace(found.processes[0], about=json.dumps(about))
        return found

    def _demangled(self, names: list[str]) -> list[str]:
        demangler = Demangler()
        found = demangler.names(names)
        demangler.close()
        return found

    def _rows(self, table: str, numbers: str) -> Iterator[list[Any]]:
        """Pieces of columns of numbers of a table of activities."""
        whole = _ACTIVITY + table
        return self.tables.rows(whole, numbers)

    def _objects(self, table: str) -> list[tuple[int, int]]:
        """The process and the thread that each row of a table is about."""
        found = []
        for columns in self.tables.blobs(_ACTIVITY + table, "objectId"):
            whole = (
                one if one and len(one) >= _OBJECT.size else bytes(_OBJECT.size) for one in columns
            )
            found += [_OBJECT.unpack_from(one) for one in whole]
        return found

    def _name_processes(self) -> None:
        objects = iter(self._objects("NAME"))
        for kind, name in self._rows("NAME", "objectKind name"):
            for what, text in zip(kind.tolist(), name.tolist(), strict=True):
                pid, thread = next(objects, (0, 0))
                called = self.texts.get(text, "")
                if what == _PROCESS and called:
                    self.tracks.process(pid, pid, called)
                elif what == _THREAD and called:
                    self.tracks.names[pid, thread] = called

    def _thread(self, pid: int, thread: int) -> int:
        """The track of a thread."""
        process = self.tracks.process(pid, pid)
        number = thread & 0xFFFF_FFFF
        known = self.tracks.names.get((pid, number))
        name = known or f"thread {number:#x}"
        return self.tracks.other(process, number, name)

    def _add_calls(self, table: str, name_of: Any) -> None:
        wanted = "start end processId threadId correlationId cbid"
        for start, end, process, thread, correlation, number in self._rows(table, wanted):
            names = [name_of(one) for one in number.tolist()]
            rows, place = by_distinct(process, thread)
            track = np.array([self._thread(*row) for row in rows], np.int32)[place]
            self.spans.add(
                start,
                end,
                kind=kinds_of_calls(names),
                track=track,
                name=self.spans.named(names),
                correlation=np.maximum(correlation, 0),
            )

    def _add_overheads(self) -> None:
        """What the profiler itself took."""
        for start, end, kind in self._rows("OVERHEAD", "start end overheadKind"):
            group = np.zeros(len(start), np.int64)
            lane = lanes(group, start, end)
            kinds = kind.tolist()
            names = [OVERHEADS.get(one, "overhead") for one in kinds]
            self.spans.add(
                start,
                end,
                kind=EVENT,
                track=by_value(lane, self._overhead),
                name=self.spans.named(names),
            )

    def _overhead(self, lane: int) -> int:
        """The track of a lane."""
        name = f"overhead ({lane + 1})" if lane else "overhead"
        process = self._first()
        return self.tracks.other(process, name, name)

    def _first(self) -> int:
        """Work does not say of which process it is."""
        return 0 if self.tracks.processes else self.tracks.process(0)

    def _add_work(self) -> None:
        about = f"{_SHAPE} registersPerThread staticSharedMemory dynamicSharedMemory name"
        for table in _KERNELS:
            for place, columns in self._work(table, about):
                registers, fixed, dynamic, name = columns[6:]
                numbers = name.tolist()
                names = [self.texts.get(one, "unknown kernel") for one in numbers]
                both = fixed + np.maximum(dynamic, 0)
                shared = np.where(fixed == NONE, NONE, both)
                told: tuple[Any, ...] = (
                    triples(*columns[:3]),
                    triples(*columns[3:6]),
                    or_none(registers),
                    or_none(shared),
                )
                self._add(KERNEL, place, names, _GRID, told)
        for table in ("MEMCPY", "MEMCPY2"):
            for place, (size, *kinds) in self._work(table, "bytes copyKind srcKind dstKind"):
                lists = [one.tolist() for one in kinds]
                names = list(map(copy_name, *lists))
                told = (or_none(size),)
                self._add(MEMCPY, place, names, _BYTES, told)
        for place, (size, kind) in self._work("MEMSET", "bytes memoryKind"):
            names = list(map(fill_name, kind.tolist()))
            told = (or_none(size),)
            self._add(MEMSET, place, names, _BYTES, told)
        self._add_waits()

    def _add_waits(self) -> None:
        """What waits names its context, and that its GPU."""
        devices: dict[int, int] = {}
        for context, device in self._rows("CONTEXT", "contextId deviceId"):
            pairs = zip(context.tolist(), device.tolist(), strict=True)
            devices.update(pairs)
        for place, (kind, context) in self._work("SYNCHRONIZATION", "type contextId"):
            numbers = context.tolist()
            found = [devices.get(one, 0) for one in numbers]
            place[2] = np.array(found, np.int64)
            kinds = kind.tolist()
            names = [SYNC_KINDS.get(one, "Sync") for one in kinds]
            self._add(SYNC, place, names, (), ())

    def _work(self, table: str, more: str) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
        """Where and when work was, in five columns, and `more` columns of it."""
        wanted = f"start end deviceId streamId correlationId {more}"
        for columns in self._rows(table, wanted):
            place, rest = columns[:5], columns[5:]
            yield place, rest

    def _add(
        self,
        kind: int,
        place: list[np.ndarray],
        names: list[str],
        keys: tuple[str, ...],
        told: tuple[Any, ...],
    ) -> None:
        start, end, device, stream, correlation = place
        rows, which = by_distinct(device, stream)
        process = self._first()
        numbers = [[-1 if one == NONE else one for one in row] for row in rows]
        streams = [self.tracks.stream(process, on, number) for on, number in numbers]
        track = np.array(streams, np.int32)[which]
        self.spans.add(
            start,
            end,
            kind=kind,
            track=track,
            name=self.spans.named(names),
            args=self.spans.arguments(keys, told) if keys else -1,
            correlation=np.maximum(correlation, 0),
        )

    def _add_markers(self) -> None:
        """Ranges are two rows with the same number, of which the first one has the name."""
        pieces = list(self._rows("MARKER", "flags timestamp id name domain"))
        if not pieces:
            return
        columns = list(map(np.concatenate, zip(*pieces, strict=True)))
        flags, at_ns, number, name, domain = columns
        owners = self._owners("MARKER", len(flags))
        begins = np.flatnonzero(flags & _BEGIN > 0)
        ends = np.flatnonzero(flags & _END > 0)
        end_of = _ends_of(number, begins, ends)
        has_end = end_of >= 0
        self.unpaired = len(ends) - int(np.count_nonzero(has_end))
        start_ns = at_ns[begins]
        end_ns = np.where(has_end, at_ns[end_of], start_ns)
        self.spans.add(
            start_ns,
            end_ns,
            kind=_TASK,
            track=self._range_tracks(owners[begins], start_ns, end_ns, has_end),
            name=self._named(name[begins]),
            args=self._domains(domain[begins]),
            unfinished=~has_end,
        )
        moments = np.flatnonzero(flags & _INSTANT > 0)
        self._add_marks(at_ns, name, owners, moments)

    def _owners(self, table: str, count: int) -> np.ndarray:
        """The process and the thread of each row; 0 where they are not told."""
        objects = self._objects(table)[:count]
        owners = np.zeros((count, 2), np.int64)
        if objects:
            owners[: len(objects)] = objects
        return owners

    def _range_tracks(
        self, owners: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, has_end: np.ndarray
    ) -> np.ndarray:
        """The tracks of ranges; those that cross lie on more than one."""
        thread = owners[:, 0] << 32 | owners[:, 1]
        last_ns = max(self.spans.latest_ns(), int(end_ns.max(initial=0)))
        until_ns = np.where(has_end, end_ns, last_ns)
        lane = lanes(thread, start_ns, until_ns)
        rows, which = by_distinct(owners, lane)
        tracks = [self._lane(*row) for row in rows]
        found: np.ndarray = np.array(tracks, np.int32)[which]
        return found

    def _domains(self, numbers: np.ndarray) -> np.ndarray:
        """The arguments of ranges: their domains."""
        names = []
        for one in numbers.tolist():
            name = self.texts.get(one)
            names.append(None if name in _NO_NAME else name)
        return self.spans.arguments(("domain",), (names,))

    def _lane(self, pid: int, thread: int, number: int) -> int:
        """The track of a thread, or of ranges that cross those on it."""
        found = self._thread(pid, thread)
        if not number:
            return found
        of = self.tracks.tracks[found]
        name = f"{of.name}: ranges ({number + 1})"
        return self.tracks.other(of.process, (thread, number), name)

    def _named(self, numbers: np.ndarray) -> np.ndarray:
        """The names of spans, by the numbers of their texts."""
        texts = []
        for one in numbers.tolist():
            text = self.texts.get(one, "unknown")
            texts.append(text)
        return self.spans.named(texts)

    def _add_marks(
        self, at_ns: np.ndarray, name: np.ndarray, owners: np.ndarray, rows: np.ndarray
    ) -> None:
        """Moments, each a row of its own."""
        is_possible = np.abs(at_ns[rows]) < MOST_NS
        rows = rows[is_possible]
        tracks, texts = [], []
        for pid, thread in owners[rows].tolist():
            track = self._thread(pid, thread)
            tracks.append(track)
        for one in name[rows].tolist():
            text = self.texts.get(one, "mark")
            texts.append(" ".join(text.split()))
        none = np.zeros(len(rows), np.int64)
        self.moments = ImportedMoments(
            at_ns=at_ns[rows],
            track=np.array(tracks, np.int32),
            name=self.spans.named(texts),
            value=none,
            is_mark=none == 0,
        )

    def _devices(self) -> dict[str, Any]:
        """The GPUs, as Kineto tells them."""
        found = []
        numbers = "id numMultiprocessors globalMemorySize computeCapabilityMajor "
        numbers += "computeCapabilityMinor numThreadsPerWarp maxWarpsPerMultiprocessor name"
        keys = "id numSms totalGlobalMem computeMajor computeMinor warpSize maxWarpsPerSm"
        for *columns, name in self._rows("DEVICE", numbers):
            for text, *told in zip(name.tolist(), *(one.tolist() for one in columns), strict=True):
                pairs = zip(keys.split(), told, strict=True)
                about: dict[str, Any] = {key: one for key, one in pairs if one != NONE}
                found.append({"name": self.texts.get(text, "GPU"), **about})
        return {"deviceProperties": found} if found else {}

    def _problems(self) -> list[Problem]:
        """What is left out."""
        found = []
        if self.unpaired:
            what = f"{self.unpaired:,} ends of ranges have no begin"
            found.append(Problem(RANGES, "ends_unpaired", what, "record again", "these ranges"))
        counts = {}
        for name in self.tables.names:
            short = name.removeprefix(_ACTIVITY)
            if short not in _READ and _OF_TIME.intersection(self.tables.columns(name)):
                counts[name] = self.tables.count(name)
        told = [f"{name} ({count:,})" for name, count in counts.items() if count]
        if told:
            what = f"tables of the database are not read: {', '.join(told)}"
            remedy = "open it in the NVIDIA Visual Profiler"
            found.append(Problem(GPU, "tables_unread", what, remedy, "these events"))
        return found


def _ends_of(number: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The row of the end of each range, by the number that both rows have; -1: there is none."""
    none = np.full(len(begins), -1)
    if not len(ends):
        return none
    numbers = number[ends]
    order = np.argsort(numbers, kind="stable")
    ends, numbers = ends[order], numbers[order]
    wanted = number[begins]
    place = np.searchsorted(numbers, wanted)
    place = np.minimum(place, len(ends) - 1)
    is_found = numbers[place] == wanted
    return np.where(is_found, ends[place], none)

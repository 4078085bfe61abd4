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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

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
_INSTANT, _BEGIN, _END = 1, 2, 4
_PROCESS, _THREAD = 1, 2
_OBJECT = struct.Struct("<II")
_READ = (
    *_KERNELS,
    *("MEMCPY", "MEMCPY2", "MEMSET", "SYNCHRONIZATION", "RUNTIME", "DRIVER", "OVERHEAD", "MARKER"),
)
_OF_TIME = {"start", "timestamp"}

# Columns that say when and where, and others.
_Work = tuple[list[np.ndarray], list[np.ndarray]]


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a database of nvprof."""
    return head.startswith(MAGIC) and all(word in head for word in _SIGNS)


def read(path: Path) -> Imported:
    """What is in the database at `path`, which may be packed with gzip."""
    with SqliteTables(path) as tables:
        return _Database(tables).imported()


@dataclass(slots=True)
class _Database:
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
        """Pieces of a table of activities."""
        name = _ACTIVITY + table
        return self.tables.rows(name, numbers)

    def _objects(self, table: str) -> list[tuple[int, int]]:
        """The process and the thread that each row of a table is about."""
        found = []
        nobody = bytes(_OBJECT.size)
        for column in self.tables.blobs(_ACTIVITY + table, "objectId"):
            for one in column:
                if one is None or len(one) < _OBJECT.size:
                    one = nobody
                found.append(_OBJECT.unpack_from(one))
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
        process = self.tracks.process(pid, pid)
        number = thread & 0xFFFF_FFFF
        name = self.tracks.names.get((pid, number))
        if not name:
            name = f"thread {number:#x}"
        return self.tracks.other(process, number, name)

    def _add_calls(self, table: str, name_of: Any) -> None:
        wanted = "start end processId threadId correlationId cbid"
        for start, end, process, thread, correlation, number in self._rows(table, wanted):
            names = [name_of(one) for one in number.tolist()]
            rows, place = by_distinct(process, thread)
            tracks = [self._thread(*row) for row in rows]
            track = np.array(tracks, np.int32)[place]
            self.spans.add(
                start,
                end,
                kind=kinds_of_calls(names),
                track=track,
                name=self.spans.named(names),
                correlation=np.maximum(correlation, 0),
            )

    def _add_overheads(self) -> None:
        for start, end, kind in self._rows("OVERHEAD", "start end overheadKind"):
            group = np.zeros(len(start), np.int64)
            lane = lanes(group, start, end)
            track = by_value(lane, self._overhead)
            name = self._texts_of(kind, OVERHEADS, "overhead")
            self.spans.add(start, end, kind=EVENT, track=track, name=name)

    def _overhead(self, lane: int) -> int:
        name = "overhead"
        if lane:
            name = f"overhead ({lane + 1})"
        process = self._first()
        return self.tracks.other(process, name, name)

    def _first(self) -> int:
        """Work does not say of which process it is."""
        return 0 if self.tracks.processes else self.tracks.process(0)

    def _add_work(self) -> None:
        for table in _KERNELS:
            self._add_kernels(table)
        for table in ("MEMCPY", "MEMCPY2"):
            self._add_copies(table)
        for place, (size, kind) in self._work("MEMSET", "bytes memoryKind"):
            texts = [fill_name(one) for one in kind.tolist()]
            name = self.spans.named(texts)
            self._add(MEMSET, place, name, ("bytes",), (or_none(size),))
        self._add_waits()

    def _add_kernels(self, table: str) -> None:
        about = f"{_SHAPE} registersPerThread staticSharedMemory dynamicSharedMemory name"
        for place, columns in self._work(table, about):
            registers, fixed, dynamic, number = columns[6:]
            name = self._texts_of(number, self.texts, "unknown kernel")
            both = fixed + np.maximum(dynamic, 0)
            is_told = fixed != NONE
            shared = np.where(is_told, both, NONE)
            grid = triples(*columns[:3])
            block = triples(*columns[3:6])
            told = (grid, block, or_none(registers), or_none(shared))
            self._add(KERNEL, place, name, _GRID, told)

    def _add_copies(self, table: str) -> None:
        for place, columns in self._work(table, "bytes copyKind srcKind dstKind"):
            size, *kinds = columns
            numbers = [one.tolist() for one in kinds]
            name = self.spans.named(map(copy_name, *numbers))
            self._add(MEMCPY, place, name, ("bytes",), (or_none(size),))

    def _add_waits(self) -> None:
        devices: dict[int, int] = {}
        for context, device in self._rows("CONTEXT", "contextId deviceId"):
            pairs = zip(context.tolist(), device.tolist(), strict=True)
            devices.update(pairs)
        for place, (kind, context) in self._work("SYNCHRONIZATION", "type contextId"):
            for row, one in enumerate(context.tolist()):
                place[2][row] = devices.get(one, 0)
            name = self._texts_of(kind, SYNC_KINDS, "Sync")
            self._add(SYNC, place, name, (), ())

    def _work(self, table: str, more: str) -> Iterator[_Work]:
        """Pieces of a table of work: when and where it was, and what else is asked for."""
        wanted = "start end deviceId streamId correlationId"
        for columns in self._rows(table, f"{wanted} {more}"):
            yield columns[:5], columns[5:]

    def _add(
        self,
        kind: int,
        place: list[np.ndarray],
        name: np.ndarray,
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
            name=name,
            args=self.spans.arguments(keys, told) if keys else -1,
            correlation=np.maximum(correlation, 0),
        )

    def _add_markers(self) -> None:
        """Ranges are two rows with the same number, of which the first one has the name."""
        pieces = list(self._rows("MARKER", "flags timestamp id name domain"))
        if not pieces:
            return
        objects = self._objects("MARKER")
        flags, at_ns, number, name, domain = map(np.concatenate, zip(*pieces, strict=True))
        owners = np.array(objects, np.int64).reshape(-1, 2)
        owners = owners[: len(flags)]
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
            track=self._tracks_of(owners[begins], start_ns, end_ns, ~has_end, int(at_ns.max())),
            name=self._texts_of(name[begins], self.texts, "unknown"),
            args=self._domains(domain[begins]),
            unfinished=~has_end,
        )
        instants = np.flatnonzero(flags & _INSTANT > 0)
        self._add_marks(at_ns, name, owners, instants)

    def _tracks_of(
        self,
        owners: np.ndarray,
        start_ns: np.ndarray,
        end_ns: np.ndarray,
        unfinished: np.ndarray,
        last_ns: int,
    ) -> np.ndarray:
        """The track of each range of these threads: those that cross lie on several."""
        last_ns = max(self.spans.latest_ns(), last_ns)
        until_ns = np.where(unfinished, last_ns, end_ns)
        thread = owners[:, 0] << 32 | owners[:, 1]
        lane = lanes(thread, start_ns, until_ns)
        rows, which = by_distinct(owners, lane)
        tracks = np.array([self._lane(*row) for row in rows], np.int32)
        found: np.ndarray = tracks[which]
        return found

    def _domains(self, numbers: np.ndarray) -> np.ndarray:
        """The arguments of ranges of these domains."""
        domains = []
        for number in numbers.tolist():
            text = self.texts.get(number)
            is_named = text not in ("-- null --", "")
            domains.append(text if is_named else None)
        return self.spans.arguments(("domain",), (domains,))

    def _lane(self, pid: int, thread: int, number: int) -> int:
        found = self._thread(pid, thread)
        if not number:
            return found
        of = self.tracks.tracks[found]
        name = f"{of.name}: ranges ({number + 1})"
        return self.tracks.other(of.process, (thread, number), name)

    def _texts_of(self, numbers: np.ndarray, texts: dict[int, str], missing: str) -> np.ndarray:
        """The numbers of the names that `texts` has for these numbers."""
        found = []
        for number in numbers.tolist():
            text = texts.get(number, missing)
            found.append(text)
        return self.spans.named(found)

    def _add_marks(
        self, at_ns: np.ndarray, name: np.ndarray, owners: np.ndarray, rows: np.ndarray
    ) -> None:
        is_possible = np.abs(at_ns[rows]) < MOST_NS
        rows = rows[is_possible]
        tracks = [self._thread(*one) for one in owners[rows].tolist()]
        texts = []
        for number in name[rows].tolist():
            words = self.texts.get(number, "mark").split()
            texts.append(" ".join(words))
        none = np.zeros(len(rows), np.int64)
        self.moments = ImportedMoments(
            at_ns=at_ns[rows],
            track=np.array(tracks, np.int32),
            name=self.spans.named(texts),
            value=none,
            is_mark=none == 0,
        )

    def _devices(self) -> dict[str, Any]:
        """The GPUs, with the keys that all sources have for them."""
        found = []
        numbers = "id numMultiprocessors globalMemorySize computeCapabilityMajor "
        numbers += "computeCapabilityMinor numThreadsPerWarp maxWarpsPerMultiprocessor name"
        keys = "id numSms totalGlobalMem computeMajor computeMinor warpSize maxWarpsPerSm"
        for *columns, name in self._rows("DEVICE", numbers):
            lists = [one.tolist() for one in (name, *columns)]
            for text, *told in zip(*lists, strict=True):
                about: dict[str, Any] = {"name": self.texts.get(text, "GPU")}
                for key, one in zip(keys.split(), told, strict=True):
                    if one != NONE:
                        about[key] = one
                found.append(about)
        if not found:
            return {}
        return {"deviceProperties": found}

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
    """The row among `ends` that has the number of each of the rows `begins`; -1: none has."""
    if not len(ends):
        return np.full(len(begins), -1)
    order = np.argsort(number[ends], kind="stable")
    ends = ends[order]
    place = np.searchsorted(number[ends], number[begins])
    place = np.minimum(place, len(ends) - 1)
    found = ends[place]
    is_same = number[found] == number[begins]
    return np.where(is_same, found, -1)

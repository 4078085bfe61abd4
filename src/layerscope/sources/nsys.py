"""Exports of Nsight Systems (`nsys export --type sqlite`): kernels, copies and fills by stream,
calls of the runtime, the driver and the system by thread, and the ranges of NVTX.

A table is there only if something was recorded for it, and its columns differ with the version.
Texts are numbers into `StringIds`. Times are ns, by the clock of the recorder. A thread is a number
that has its process in bits 24 to 47 and itself in bits 0 to 23.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import GPU
from layerscope.sources.imported import Imported
from layerscope.sources.kineto_meaning import EVENT, KERNEL, MEMCPY, MEMSET, SYNC
from layerscope.sources.nsys_ranges import NvtxRanges
from layerscope.sources.nvidia_names import SYNC_KINDS, called, copy_name, fill_name
from layerscope.sources.span_rows import MOST_NS, FoundTracks, SpanRows, by_distinct, kinds_of_calls
from layerscope.sources.sqlite_rows import (
    MAGIC,
    NONE,
    SqliteTables,
    by_value,
    or_none,
    triples,
)

MEANING = "an export of Nsight Systems (nsys export --type sqlite)"
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
# What only nvprof writes: its tables have a number for each row.
_NVPROF = (b"_id_ INTEGER PRIMARY KEY AUTOINCREMENT", _ACTIVITY.encode())
_BITS, _MASK = 24, (1 << 24) - 1
# What a file has that is one, or that shows what else it is.
_OWN = ("StringIds", "META_DATA_EXPORT", "NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME")
_ROCPD = "rocpd_"
_GRID = ("grid", "block", "registers per thread", "shared memory", "graph node id")
# Tables of events that are read; others that have times are named.
_READ = (
    *(f"{_ACTIVITY}{name}" for name in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION")),
    *(f"{_ACTIVITY}{name}" for name in ("GRAPH_TRACE", "RUNTIME", "OVERHEAD")),
    "OSRT_API",
    "CUDNN_EVENTS",
    "CUBLAS_EVENTS",
    "NVTX_EVENTS",
)
_OF_TIME = {"start", "timestamp", "rawTimestamp"}


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a database of SQLite, and none of nvprof."""
    return head.startswith(MAGIC) and not all(word in head for word in _NVPROF)


def read(path: Path) -> Imported:
    """What is in the export at `path`, which may be packed with gzip."""
    with SqliteTables(path) as tables:
        _refuse(path, tables)
        return _Export(tables).imported()


def _refuse(path: Path, tables: SqliteTables) -> None:
    known = [name for name in tables.names if name in _OWN or name.startswith(_ACTIVITY)]
    if known:
        return
    if any(name.startswith(_ROCPD) for name in tables.names):
        raise ReadError(
            f"{path} is a database of rocprofv3, which cannot be read: record with "
            "rocprofv3 --output-format json, and open what that writes"
        )
    raise ReadError(
        f"{path} is a database of SQLite without a table of Nsight Systems: of those only what "
        "nsys export --type sqlite writes can be read"
    )


class _Export(Struct):
    """Reads the tables one after the other into `spans`."""

    tables: SqliteTables
    spans: SpanRows = field(default_factory=SpanRows)
    tracks: FoundTracks = field(default_factory=FoundTracks)
    texts: dict[int, str] = field(default_factory=dict)
    _pids: dict[int, str] = field(default_factory=dict)

    def imported(self) -> Imported:
        """All of it."""
        self.texts = self.tables.mapping("StringIds", "id", "value")
        self._pids = self.tables.mapping("PROCESSES", "pid", "name")
        self._name_threads()
        self._add_calls()
        ranges = NvtxRanges(self.spans, self.tracks, self.texts, self.thread_tracks)
        ranges.add(self.tables)
        self._add_work()
        first_ns = self.spans.first_ns()
        found = self.spans.imported(self.tracks, first_ns)
        found.moments = replace(ranges.moments(), at_ns=ranges.moments().at_ns - first_ns)
        found.realtime_ns = self._realtime_ns(first_ns)
        found.problems += [*self.tables.problems(), *self._unread(), *ranges.problems()]
        found.host = self._setting("Hostname")
        found.versions = self._versions()
        found.processes = [replace(one, rank=self._rank()) for one in found.processes]
        if about := self._devices():
            found.processes[0] = replace(found.processes[0], about=json.dumps(about))
        return found

    def _rank(self) -> int | None:
        """Of one process alone; which rank each of several is, nobody tells."""
        return 0 if len(self.tracks.processes) <= 1 else None

    def _name_threads(self) -> None:
        for thread, name in self.tables.rows("ThreadNames", "globalTid nameId"):
            for number, text in zip(thread.tolist(), name.tolist(), strict=True):
                if number == NONE or text not in self.texts:
                    continue
                pid = number >> _BITS & _MASK
                tid = number & _MASK
                # Processes are numbered as they come: by the pid until then.
                key = ("pid", pid, tid)
                self.tracks.names[key] = self.texts[text]

    def process(self, of: int) -> int:
        """The number of the process of a thread, or of itself; NONE: the first one."""
        if of == NONE:
            return 0 if self.tracks.processes else self.tracks.process(0)
        pid = of >> _BITS & _MASK
        return self.tracks.process(pid, pid, self._pids.get(pid, ""))

    def thread_tracks(self, threads: np.ndarray, what: str = "") -> np.ndarray:
        """The track of each of these threads, or one beside it."""

        def track(thread: int) -> int:
            process = self.process(thread)
            pid, tid = 0, 0
            if thread != NONE:
                pid = thread >> _BITS & _MASK
                tid = thread & _MASK
            name = self.tracks.names.get(("pid", pid, tid), "")
            found = self.tracks.thread(process, tid, name)
            if what:
                return self.tracks.beside(process, tid, what)
            return found

        return by_value(threads, track)

    def _streams(self, *columns: np.ndarray) -> np.ndarray:
        """The tracks of these processes, devices and streams."""
        rows, place = by_distinct(*columns)
        found = []
        for of, device, stream in rows:
            process = self.process(of)
            if device == NONE:
                device = -1
            if stream == NONE:
                stream = -1
            found.append(self.tracks.stream(process, device, stream))
        tracks: np.ndarray = np.array(found, np.int32)[place]
        return tracks

    def _texts_of(self, numbers: np.ndarray, missing: str) -> list[str]:
        found = []
        for number in numbers.tolist():
            text = self.texts.get(number, missing)
            found.append(text)
        return found

    def _add_calls(self) -> None:
        for table, what in (
            (f"{_ACTIVITY}RUNTIME", ""),
            ("OSRT_API", ""),
            ("CUDNN_EVENTS", "libraries"),
            ("CUBLAS_EVENTS", "libraries"),
            (f"{_ACTIVITY}OVERHEAD", "overhead"),
        ):
            wanted = "start end globalTid correlationId nameId"
            for start, end, thread, correlation, name in self.tables.rows(table, wanted):
                names = [called(text) for text in self._texts_of(name, "unknown")]
                kinds: Any = EVENT
                if not what:
                    kinds = SYNC if table == "OSRT_API" else kinds_of_calls(names)
                self.spans.add(
                    start,
                    end,
                    kind=kinds,
                    track=self.thread_tracks(thread, what),
                    name=self.spans.named(names),
                    correlation=np.maximum(correlation, 0),
                )

    def _add_work(self) -> None:
        self._add_kernels()
        self._add_graphs()
        copies = "bytes copyKind srcKind dstKind"
        for *place, size, kind, source, target in self._work("MEMCPY", copies):
            # Kinds of memory begin with 0 here, and with 1 in CUPTI.
            of_memory = source + 1, target + 1
            numbers = [one.tolist() for one in (kind, *of_memory)]
            names = list(map(copy_name, *numbers))
            self._add(MEMCPY, place, names, ("bytes",), size)
        for *place, size, kind in self._work("MEMSET", "bytes memKind"):
            of_fills = (kind + 1).tolist()
            names = list(map(fill_name, of_fills))
            self._add(MEMSET, place, names, ("bytes",), size)
        for *place, kind in self._work("SYNCHRONIZATION", "syncType"):
            names = [SYNC_KINDS.get(one, "Sync") for one in kind.tolist()]
            self._add(SYNC, place, names, ())

    def _work(self, table: str, more: str) -> Any:
        wanted = "start end globalPid deviceId streamId correlationId"
        return self.tables.rows(_ACTIVITY + table, f"{wanted} {more}")

    def _add_kernels(self) -> None:
        about = (
            "demangledName shortName gridX gridY gridZ blockX blockY blockZ registersPerThread "
            "staticSharedMemory dynamicSharedMemory graphNodeId"
        )
        for columns in self._work("KERNEL", about):
            place, (whole, short), shape = columns[:6], columns[6:8], columns[8:14]
            registers, fixed, dynamic, node = columns[14:]
            number = np.where(whole == NONE, short, whole)
            names = self._texts_of(number, "unknown kernel")
            both = fixed + np.maximum(dynamic, 0)
            shared = np.where(fixed == NONE, NONE, both)
            grid = triples(*shape[:3])
            block = triples(*shape[3:])
            self._add(KERNEL, place, names, _GRID, grid, block, registers, shared, node)

    def _add_graphs(self) -> None:
        """Of graphs that are recorded as a whole the file has no kernels."""
        for *place, graph in self._work("GRAPH_TRACE", "graphId"):
            names = [f"CUDA graph {one}" if one != NONE else "CUDA graph" for one in graph.tolist()]
            self._add(KERNEL, place, names, ())

    def _add(
        self,
        kind: int,
        place: list[np.ndarray],
        names: list[str],
        keys: tuple[str, ...],
        *told: Any,
    ) -> None:
        start, end, process, device, stream, correlation = place
        columns = [one if isinstance(one, list) else or_none(one) for one in told]
        self.spans.add(
            start,
            end,
            kind=kind,
            track=self._streams(process, device, stream),
            name=self.spans.named(names),
            args=self.spans.arguments(keys, columns) if keys else -1,
            correlation=np.maximum(correlation, 0),
        )

    def _realtime_ns(self, first_ns: int) -> int | None:
        """When the first event was. Times count from the beginning of the recording, or, where the
        export was told not to shift them, as the clock of the system does.
        """
        for began, clock in self.tables.rows(
            "TARGET_INFO_SESSION_START_TIME", "utcEpochNs systemClockNs"
        ):
            if 0 < began[0] < MOST_NS:
                is_shifted = self._exported("EXPORT_PARAM_TIME_NORMALIZE") == "false"
                since_ns = int(clock[0]) if is_shifted and 0 < clock[0] <= first_ns else 0
                return int(began[0]) + first_ns - since_ns
        return None

    def _exported(self, name: str) -> str:
        for names, values in self.tables.rows("META_DATA_EXPORT", "", "name value"):
            if name in names:
                return values[names.index(name)] or ""
        return ""

    def _setting(self, name: str) -> str:
        for names, values in self.tables.rows("TARGET_INFO_SYSTEM_ENV", "", "name value"):
            if name in names:
                return values[names.index(name)] or ""
        return ""

    def _versions(self) -> dict[str, str]:
        told = {
            "nsys": self._exported("EXPORT_PRODUCT_VERSION"),
            "cuda_driver": self._setting("NvDriverVersion"),
        }
        return {name: version for name, version in told.items() if version}

    def _devices(self) -> dict[str, Any]:
        """The GPUs, as Kineto tells them."""
        found = []
        numbers = "id smCount totalMemory computeMajor computeMinor maxWarpsPerSm threadsPerWarp"
        keys = "id numSms totalGlobalMem computeMajor computeMinor maxWarpsPerSm warpSize"
        for *columns, names in self.tables.rows("TARGET_INFO_GPU", numbers, "name"):
            lists = [one.tolist() for one in columns]
            for name, *told in zip(names, *lists, strict=True):
                about: dict[str, Any] = {"name": name or "GPU"}
                for key, one in zip(keys.split(), told, strict=True):
                    if one != NONE:
                        about[key] = one
                found.append(about)
        if not found:
            return {}
        return {"deviceProperties": found}

    def _unread(self) -> list[Problem]:
        """Tables of events that are left out."""
        counts = {}
        for name in self.tables.names:
            if name not in _READ and _OF_TIME.intersection(self.tables.columns(name)):
                counts[name] = self.tables.count(name)
        told = [f"{name} ({count:,})" for name, count in counts.items() if count]
        if not told:
            return []
        what = f"tables of the export are not read: {', '.join(told)}"
        return [Problem(GPU, "tables_unread", what, "open the report in nsys-ui", "these events")]

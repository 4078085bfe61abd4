"""What Nsight Systems exports as SQLite (`nsys export --type sqlite`): kernels, copies and fills by
stream, calls of the runtime and the driver, ranges of NVTX. Tables that are missing are no fault.

Times are whole ns since the session began. A thread is a number with the process in bits 24 to 47
and the thread below.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import GPU, KINDS, STREAM
from layerscope.sources.imported import (
    Imported,
    ImportedMoments,
    ImportedProcess,
    ImportedTrack,
)
from layerscope.sources.kineto_meaning import (
    KERNEL,
    MEMCPY,
    MEMSET,
    SYNC,
    kind_of_call,
)
from layerscope.sources.span_depths import depths

MEANING = "an export of Nsight Systems (SQLite)"
_MAGIC = b"SQLite format 3\0"
_TABLES = "CUPTI_ACTIVITY_KIND_"
_TASK = KINDS.index("task")
_BITS, _MASK = 24, (1 << 24) - 1
_PUSHED, _STARTED, _MARKED = 59, 60, 34
_VERSION = re.compile(r"_v\d+$")
_AT_ONCE = 100_000
_NONE = -1
# The columns of a row: when, on which device and stream or of which thread, and what.
_ROW = ("start", "end", "process", "place", "device", "correlation", "name", "args", "kind")
_SHARED = "coalesce(staticSharedMemory, 0) + coalesce(dynamicSharedMemory, 0)"
_OF_KERNELS = {
    "grid": "json_array(gridX, gridY, gridZ)",
    "block": "json_array(blockX, blockY, blockZ)",
    "registers per thread": "registersPerThread",
    "shared memory": _SHARED,
}
_OF_COPIES = {"bytes": "bytes", "copy kind": "copyKind", "value": "value"}


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is such an export."""
    if not head.startswith(_MAGIC):
        return False
    wanted = (b"StringIds", _TABLES.encode())
    return all(name in head for name in wanted)


def read(path: Path) -> Imported:
    """What is in the export at `path`, which is not changed."""
    quoted = quote(str(path.resolve()))
    address = f"file:{quoted}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
            database.text_factory = _text
            return _Export(database).content()
    except sqlite3.Error as error:
        raise ReadError(f"{path} is damaged ({error}): export it again") from error


def _text(text: bytes) -> str:
    return text.decode("utf-8", "replace")


class _Export:
    """An open database on its way to columns."""

    def __init__(self, database: sqlite3.Connection) -> None:
        """Its tables and its texts."""
        self._database = database
        self._names: dict[str, int] = {}
        self._args: dict[str, int] = {}
        self._rows: list[np.ndarray] = []
        found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {str(name) for (name,) in found}
        strings = self._select("StringIds", "id", "value")
        self._strings: dict[int, str] = dict(strings)

    def content(self) -> Imported:
        """Everything that there is."""
        self._add_work()
        self._add_calls()
        marks = self._add_ranges()
        rows = np.concatenate([np.zeros((0, len(_ROW)), np.int64), *self._rows])
        columns = dict(zip(_ROW, rows.T, strict=True))
        pids = self._give_processes(columns)
        tracks, track = self._tracks(columns, pids)
        end_ns = np.maximum(columns["end"], columns["start"])
        order = np.lexsort((-end_ns, columns["start"], track))
        columns = {name: values.take(order) for name, values in columns.items()}
        track, end_ns = track.take(order), end_ns.take(order)
        start_ns = columns["start"]
        first_ns = int(start_ns.min()) if len(start_ns) else 0
        has_number = (columns["kind"] >= KERNEL) & (columns["correlation"] > 0)
        epoch_ns = next((ns for (ns,) in self._select(_SESSION, "utcEpochNs") if ns), None)
        marks.at_ns = marks.at_ns - first_ns
        return Imported(
            start_ns=start_ns - first_ns,
            dur_ns=end_ns - start_ns,
            track=track,
            depth=depths(track, start_ns, end_ns),
            kind=columns["kind"].astype(np.uint8),
            name=columns["name"].astype(np.int32),
            args=columns["args"].astype(np.int32),
            more={"origin": np.where(has_number, columns["correlation"], 0)},
            names=list(self._names),
            args_texts=list(self._args),
            tracks=tracks,
            processes=self._processes(pids),
            moments=marks if len(tracks) else ImportedMoments(),
            realtime_ns=None if epoch_ns is None else epoch_ns + first_ns,
            problems=[] if len(start_ns) else [_NOTHING],
        )

    def _select(self, table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
        """Rows of a table; null for columns that it has not, none where it is missing."""
        if table not in self._tables:
            return
        found = self._database.execute(f'PRAGMA table_info("{table}")')
        known = {str(row[1]) for row in found}
        columns = [f'"{name}"' if name in known else "NULL" for name in wanted]
        rows = self._database.execute(f'SELECT {", ".join(columns)} FROM "{table}"')
        while some := rows.fetchmany(_AT_ONCE):
            yield from some

    def _arguments(self, table: str, of: dict[str, str]) -> str:
        """An expression for the arguments of a row, of the columns that the table has."""
        found = self._database.execute(f'PRAGMA table_info("{table}")')
        known = {str(row[1]) for row in found}
        pairs = []
        for name, expression in of.items():
            needed = set(re.findall(r"\b[a-z]+[A-Z]\w*|\bbytes\b|\bvalue\b", expression))
            if needed <= known:
                pairs.append(f"'{name}', {expression}")
        return f"json_object({', '.join(pairs)})" if pairs else "NULL"

    def _add(self, rows: list[tuple[Any, ...]]) -> None:
        """Rows of `_ROW`."""
        if not rows:
            return
        numbers = np.array(rows, np.int64)
        self._rows.append(numbers)

    def _name(self, text: str) -> int:
        """The number of a name, on one line."""
        one_line = " ".join(text.split())
        return self._names.setdefault(one_line or "(no name)", len(self._names))

    def _add_work(self) -> None:
        """Kernels, copies, fills, and waits on streams."""
        tables = {
            "KERNEL": (KERNEL, _OF_KERNELS),
            "MEMCPY": (MEMCPY, _OF_COPIES),
            "MEMSET": (MEMSET, _OF_COPIES),
            "SYNCHRONIZATION": (SYNC, {}),
        }
        for ending, (kind, arguments) in tables.items():
            table = f"{_TABLES}{ending}"
            if table in self._tables:
                self._add_work_of(table, kind, arguments)

    def _add_work_of(self, table: str, kind: int, arguments: dict[str, str]) -> None:
        """The rows of one of these tables."""
        texts = self._database.execute(f'SELECT {self._arguments(table, arguments)} FROM "{table}"')
        of_place = ("start", "end", "globalPid", "streamId", "deviceId", "correlationId")
        of_name = ("demangledName", "shortName", "copyKind", "syncType")
        rows = []
        found = self._select(table, *of_place, *of_name)
        for row, (text,) in zip(found, texts, strict=True):
            start, end, process, stream, device, correlation, whole, short, *other = row
            number = short if whole is None else whole
            name = self._strings.get(number, "")
            if number is None:
                name = _called(kind, *other)
            pid = _NONE if process is None else process >> _BITS & _MASK
            args = _NONE
            if text is not None:
                args = self._args.setdefault(text, len(self._args))
            place = (pid, stream or 0, device or 0, correlation or 0)
            rows.append((start, end, *place, self._name(name), args, kind))
        self._add(rows)

    def _add_calls(self) -> None:
        """Calls of the runtime and of the driver, which one table has."""
        rows = []
        wanted = ("start", "end", "globalTid", "correlationId", "nameId")
        for start, end, thread, correlation, name in self._select(f"{_TABLES}RUNTIME", *wanted):
            text = _VERSION.sub("", self._strings.get(name, "a call"))
            kind = kind_of_call(text)
            place = _place(thread)
            rows.append(
                (start, end, *place, _NONE, correlation or 0, self._name(text), _NONE, kind)
            )
        self._add(rows)

    def _add_ranges(self) -> ImportedMoments:
        """Ranges of NVTX; its marks are returned, all on the first track."""
        rows, marks = [], []
        wanted = ("start", "end", "eventType", "globalTid", "text", "textId")
        for start, end, kind, thread, text, number in self._select("NVTX_EVENTS", *wanted):
            name = self._name(text if text is not None else self._strings.get(number, ""))
            if kind == _MARKED:
                marks.append((start, name))
            elif kind in (_PUSHED, _STARTED) and end is not None:
                rows.append((start, end, *_place(thread), _NONE, 0, name, _NONE, _TASK))
        self._add(rows)
        found = np.array(marks, np.int64).reshape(-1, 2)
        nothing = np.zeros(len(found), np.int64)
        is_mark = np.ones(len(found), np.bool_)
        return ImportedMoments(found[:, 0], nothing, found[:, 1], nothing, is_mark)

    def _give_processes(self, columns: dict[str, np.ndarray]) -> list[int]:
        """Numbers of processes; work whose process is not told is that of the first one."""
        known = columns["process"]
        told = known[known >= 0]
        pids = np.unique(told).tolist() or [0]
        first = pids[0]
        columns["process"] = np.where(known < 0, first, known)
        return pids

    def _tracks(
        self, columns: dict[str, np.ndarray], pids: list[int]
    ) -> tuple[list[ImportedTrack], np.ndarray]:
        """The tracks, and that of each row: streams by device, threads by process."""
        threads = dict(self._select("ThreadNames", "globalTid", "nameId"))
        named = {_place(thread): self._strings.get(name, "") for thread, name in threads.items()}
        is_stream = columns["device"] >= 0
        key = np.column_stack([is_stream, columns["process"], columns["device"], columns["place"]])
        different, track = np.unique(key, axis=0, return_inverse=True)
        track = track.ravel()
        tracks = []
        for of_stream, pid, device, place in different.tolist():
            process = pids.index(pid)
            if of_stream:
                one = ImportedTrack(process, f"stream {place}", kind=STREAM, device=device)
            else:
                name = named.get((pid, place), "") or f"thread {place}"
                one = ImportedTrack(process, name, place)
            tracks.append(one)
        return tracks, track.astype(np.int32)

    def _processes(self, pids: list[int]) -> list[ImportedProcess]:
        """The first one has the GPUs."""
        gpus = [
            {"id": number, "name": name, "numSms": count}
            for number, name, count in self._select("TARGET_INFO_GPU", "id", "name", "smCount")
        ]
        about = json.dumps({"deviceProperties": gpus}) if gpus else None
        first, *others = pids
        return [
            ImportedProcess(rank=0, pid=first, about=about),
            *(ImportedProcess(pid=pid) for pid in others),
        ]


_SESSION = "TARGET_INFO_SESSION_START_TIME"
_NOTHING = Problem(
    GPU,
    "no_events",
    "the export has no kernel, copy, call or range",
    "profile with nsys profile --trace cuda,nvtx",
    "everything",
)
_COPIES = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
_SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}


def _called(kind: int, copy: int | None, sync: int | None) -> str:
    """What has no name of its own, as CUPTI numbers it."""
    if kind == MEMSET:
        return "Memset"
    if kind == MEMCPY:
        return _COPIES.get(copy or 0, "Memcpy")
    return _SYNCS.get(sync or 0, "Sync")


def _place(thread: int | None) -> tuple[int, int]:
    """The numbers of process and thread."""
    if thread is None:
        return 0, 0
    process = thread >> _BITS
    return process & _MASK, thread & _MASK

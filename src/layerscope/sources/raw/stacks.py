"""Stacks of threads, on a CPU and waiting, from the sampler's raw file.

Clock: CLOCK_MONOTONIC. The sampler (`native/sampler`) has unwound and interned the stacks;
`SampledFile` gives what is new in its file as columns, in which the numbers are the sampler's own.
"""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field, structs

from layerscope.rawfile import raw_file, sampler_file, windows

_ROWS = {
    sampler_file.PROCESSES: sampler_file.PROCESS,
    sampler_file.THREADS: sampler_file.THREAD,
    sampler_file.FRAMES: sampler_file.FRAME,
    sampler_file.STACKS: sampler_file.STACK,
    sampler_file.SAMPLES: sampler_file.SAMPLE,
    sampler_file.ACCOUNTS: sampler_file.ACCOUNT,
    sampler_file.PROCESS_ACCOUNTS: sampler_file.PROCESS_ACCOUNT,
    sampler_file.QUALITY: sampler_file.QUALITY_OF,
}
_PAD_BYTES = 8
_KEPT_FILES = 8


class ObjectFile(Struct, frozen=True):
    """A file of which code was mapped."""

    path: str
    build_id: bytes
    mtime_ns: int


class Code(Struct, frozen=True):
    """A code object of Python. `lines`: its co_linetable, as Python 3.`python` writes it."""

    process: int
    name: str
    file: str
    first_line: int
    python: int
    lines: bytes


class SampledFile(Struct):
    """What the raw file `path` holds; `advance` reads on. A file that is not there holds nothing.

    Where the sampler took the place of another, what only that one's file has is taken from there:
    names of code objects, and how much of a thread's CPU time before is told already. `ended`:
    nothing more will come.
    """

    path: Path
    settings: dict[str, Any] = field(default_factory=dict)
    objects: list[ObjectFile] = field(default_factory=list)
    codes: list[Code] = field(default_factory=list)
    made: list[str] = field(
        default_factory=list
    )  # names of code that was made while the program ran
    processes: dict[int, np.void] = field(
        default_factory=dict
    )  # rows of `sampled.PROCESS` by number, the newest
    threads: dict[int, np.void] = field(default_factory=dict)  # of `sampled.THREAD`
    names: dict[int, str] = field(default_factory=dict)  # by thread, as the program calls it
    quality: np.void = field(default_factory=lambda: np.zeros(1, sampler_file.QUALITY_OF)[0])
    problems: list[dict[str, Any]] = field(default_factory=list)
    until_ns: int = -1  # all samples that began before this have been read
    ended: bool = False
    came_to_end: bool = False  # its sampler was told to end
    _reader: raw_file.SpoolReader | None = None
    _before: _Predecessor | None = None
    _is_later: bool | None = None
    _known_as: dict[tuple[int, int], int] = field(
        default_factory=dict
    )  # (process, what it calls a code) -> the code
    _fresh: dict[int, list[np.ndarray]] = field(default_factory=dict)

    def advance(self) -> None:
        """Read what is new."""
        if self._reader is None:
            if not self.path.is_file():
                return
            self._reader = raw_file.SpoolReader(self.path)
        # Looked at before reading: a sampler that has been replaced writes no more.
        is_replaced = self._neighbour(1).exists()
        for chunk in self._reader.chunks():
            self._add(chunk)
        self.ended |= is_replaced

    @property
    def gap_ns(self) -> tuple[int, int] | None:
        """From when until when there was no sampler, before the one that wrote this, though one was
        wanted; None: this is the first, or the one before was told to end.
        """
        before = self._predecessor()
        if before is None or before.came_to_end or "began_ns" not in self.settings:
            return None
        began_ns = int(self.settings["began_ns"])
        return min(max(before.until_ns, before.last_ns), began_ns), began_ns

    def take(self, kind: int) -> np.ndarray:
        """The rows of chunks of this kind (FRAMES, STACKS, SAMPLES or ACCOUNTS) that have come
        since the last call.
        """
        parts = self._fresh.pop(kind, [])
        return np.concatenate(parts) if parts else np.zeros(0, _ROWS[kind])

    @property
    def is_damaged(self) -> bool:
        """Whether something in it did not match its checksum: what follows is lost."""
        return self._reader is not None and self._reader.damaged

    def _add(self, chunk: raw_file.Chunk) -> None:
        kind, payload = chunk.kind, chunk.payload
        if kind in _ROWS:
            dtype = _ROWS[kind]
            rows = np.frombuffer(payload, dtype, len(payload) // dtype.itemsize)
            self._add_rows(kind, rows)
        elif kind == sampler_file.POLL:
            self.until_ns = int(np.frombuffer(payload, "<u8", 1)[0])
        elif kind == sampler_file.OBJECTS:
            self._add_objects(payload)
        elif kind == sampler_file.CODES:
            self._add_codes(payload)
        elif kind == sampler_file.MADES:
            self._add_made(payload)
        elif kind == sampler_file.NAMES:
            self._add_names(payload)
        elif kind == sampler_file.SETTINGS:
            self.settings = json.loads(payload)
        elif kind == sampler_file.PROBLEMS:
            self.problems += json.loads(payload)
        elif kind == sampler_file.END:
            self.ended = self.came_to_end = True

    def _add_rows(self, kind: int, rows: np.ndarray) -> None:
        if kind == sampler_file.PROCESSES:
            self.processes.update((int(row["process"]), row) for row in rows)
        elif kind == sampler_file.THREADS:
            self.threads.update((int(row["thread"]), row) for row in rows)
        elif kind == sampler_file.QUALITY:
            if len(rows):
                self.quality = rows[-1]
        else:
            if kind == sampler_file.SAMPLES:
                rows = self._without_earlier(rows)
            self._fresh.setdefault(kind, []).append(rows)

    def _add_objects(self, payload: bytes) -> None:
        at = 0
        head_bytes = sampler_file.OBJECT.itemsize
        while at + head_bytes <= len(payload):
            head = np.frombuffer(payload, sampler_file.OBJECT, 1, at)[0]
            at += head_bytes
            path_bytes = int(head["path_bytes"])
            path = payload[at : at + path_bytes].decode("utf-8", "surrogateescape")
            at += _padded(path_bytes)
            build_id_bytes = int(head["build_id_bytes"])
            build_id = head["build_id"].tobytes()[:build_id_bytes]
            modified_ns = int(head["mtime_ns"])
            self.objects.append(ObjectFile(path, build_id, modified_ns))

    def _add_made(self, payload: bytes) -> None:
        at = 0
        head_bytes = sampler_file.MADE_CODE.itemsize
        while at + head_bytes <= len(payload):
            head = np.frombuffer(payload, sampler_file.MADE_CODE, 1, at)[0]
            at += head_bytes
            length = int(head["name_bytes"])
            name = payload[at : at + length]
            self.made.append(name.decode("utf-8", "replace"))
            at += _padded(length)

    def _add_names(self, payload: bytes) -> None:
        at = 0
        while at + sampler_file.NAME.itemsize <= len(payload):
            head = np.frombuffer(payload, sampler_file.NAME, 1, at)[0]
            at += sampler_file.NAME.itemsize
            length = int(head["name_bytes"])
            name = payload[at : at + length].decode("utf-8", "replace")
            self.names[int(head["thread"])] = name
            at += _padded(length)

    def _add_codes(self, payload: bytes) -> None:
        at = 0
        while at + sampler_file.CODE.itemsize <= len(payload):
            head = np.frombuffer(payload, sampler_file.CODE, 1, at)[0]
            at += sampler_file.CODE.itemsize
            lengths = [int(head[name]) for name in ("name_bytes", "file_bytes", "lines_bytes")]
            ends = np.cumsum([at, *lengths]).tolist()
            name, file, lines = (payload[a:b] for a, b in itertools.pairwise(ends))
            at += _padded(sum(lengths))
            process, known_as = int(head["process"]), int(head["known_as"])
            if known_as != sampler_file.NONE:
                self._known_as[process, known_as] = int(head["code"])
            if int(head["code"]) < len(self.codes):  # it has one more name
                continue
            code = Code(
                process,
                name.decode("utf-8", "replace"),
                file.decode("utf-8", "replace"),
                int(head["first_line"]),
                int(head["python"]),
                lines,
            )
            self.codes.append(code if any(lengths) else self._earlier_code(code, known_as))

    def _was_closed(self) -> bool:
        """Whether the window was closed before this sampler began: the session says when it is."""
        if self._is_later is None:
            asked = windows.read(self.path.parent)
            is_first = "." not in self.path.name
            self._is_later = asked is not None and (
                asked.steered or (asked.follows_session and not is_first)
            )
        return self._is_later

    # -- the file of the sampler before ------------------------------------------------------------

    def _neighbour(self, by: int) -> Path:
        name, _, number = self.path.name.partition(".")
        generation = int(number or 0) + by
        if generation:
            name = f"{name}.{generation}"
        return self.path.with_name(name)

    def _predecessor(self) -> _Predecessor | None:
        """What the sampler before wrote; None: there was none."""
        if self._before is None and "." in self.path.name:
            file = self._neighbour(-1)
            changed_ns = file.stat().st_mtime_ns if file.is_file() else 0
            self._before = _ended_file(file, changed_ns)
        return self._before

    def _earlier_code(self, code: Code, known_as: int) -> Code:
        """A code object as the sampler before this one knew it."""
        before = self._predecessor()
        row = self.processes.get(code.process)
        if before is None or row is None:
            return code
        pid = int(row["pid"])
        found = before.code_of(pid, known_as)
        if found is None:
            return code
        return structs.replace(found, process=code.process)

    def _without_earlier(self, rows: np.ndarray) -> np.ndarray:
        """Rows of samples, without the CPU time that an earlier file has counted for the same
        threads.
        """
        whole = np.flatnonzero(rows["flags"] & sampler_file.BEFORE)
        if len(whole) and self._was_closed():  # nobody asked for what was before
            return rows.compress(rows["flags"] & sampler_file.BEFORE == 0)
        before = self._predecessor() if len(whole) else None
        if before is None:
            return rows
        rows = rows.copy()
        threads, weights_ns = rows["thread"], rows["weight_ns"]
        for place in whole.tolist():
            thread = int(threads[place])
            tid = int(self.threads[thread]["tid"])
            earlier_ns = before.used_ns(tid)
            weight_ns = int(weights_ns[place])
            weights_ns[place] -= min(earlier_ns, weight_ns)
        return rows


class _Predecessor(SampledFile):
    """A file whose sampler was replaced: read in one go, and of its samples nothing but sums by
    thread is kept.
    """

    last_ns: int = -1
    _cpu_ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    def _add_rows(self, kind: int, rows: np.ndarray) -> None:
        if kind in (sampler_file.PROCESSES, sampler_file.THREADS):
            super()._add_rows(kind, rows)
        elif kind == sampler_file.SAMPLES and len(rows):
            newest_ns = int(rows["at_ns"].max())
            self.last_ns = max(self.last_ns, newest_ns)
            self._add_cpu_time(rows)

    def _add_cpu_time(self, samples: np.ndarray) -> None:
        threads, known = len(self.threads), len(self._cpu_ns)
        if known < threads:
            more = 2 * threads - known
            self._cpu_ns = np.pad(self._cpu_ns, (0, more))
        is_cpu = samples["kind"] == sampler_file.CPU
        cpu = samples[is_cpu]
        np.add.at(self._cpu_ns, cpu["thread"], cpu["weight_ns"])

    def used_ns(self, tid: int) -> int:
        """CPU time of the thread that had this number at the end, in all programs that it was."""
        total_ns, next_start_ns = 0, 0
        for number, row in sorted(self.threads.items(), reverse=True):
            if int(row["tid"]) != tid or number >= len(self._cpu_ns):
                continue
            is_before_next = int(row["end_ns"]) == next_start_ns
            if is_before_next:
                total_ns += int(self._cpu_ns[number])
                next_start_ns = int(row["start_ns"])
        return total_ns

    def code_of(self, pid: int, known_as: int) -> Code | None:
        """What the process that had this number at the end calls so; None: it is not known."""
        for number, row in self.processes.items():
            code = self._known_as.get((number, known_as))
            if row["pid"] == pid and not row["end_ns"] and code is not None:
                return self.codes[code]
        return None


@functools.lru_cache(maxsize=_KEPT_FILES)
def _ended_file(path: Path, changed_ns: int) -> _Predecessor:
    """What is in the file of a sampler that writes no more, `changed_ns` at last. It may need the
    one before it, and so on: where they are read in their order, that is here already.
    """
    del changed_ns
    found = _Predecessor(path)
    found.advance()
    return found


def _padded(length: int) -> int:
    return -(-length // _PAD_BYTES) * _PAD_BYTES

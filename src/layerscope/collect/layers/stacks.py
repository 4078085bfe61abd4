"""Stacks of threads, on a CPU and waiting, from the sampler's raw file.

Clock: CLOCK_MONOTONIC. The sampler (`native/sampler`) has unwound and interned the stacks; `SampledFile` gives what is
new in its file as columns, in which the numbers are the sampler's own.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.collect import sampled, spool

_ROWS = {
    sampled.PROCESSES: sampled.PROCESS,
    sampled.THREADS: sampled.THREAD,
    sampled.FRAMES: sampled.FRAME,
    sampled.STACKS: sampled.STACK,
    sampled.SAMPLES: sampled.SAMPLE,
    sampled.ACCOUNTS: sampled.ACCOUNT,
    sampled.QUALITY: sampled.QUALITY_OF,
}
_PAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """A file of which code was mapped."""

    path: str
    build_id: bytes
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Code:
    """A code object of Python. `lines`: its co_linetable, as Python 3.`python` writes it."""

    process: int
    name: str
    file: str
    first_line: int
    python: int
    lines: bytes


@dataclass(slots=True)
class SampledFile:
    """What the raw file `path` holds; `advance` reads on. A file that is not there holds nothing."""

    path: Path
    settings: dict[str, Any] = field(default_factory=dict)
    objects: list[ObjectFile] = field(default_factory=list)
    codes: list[Code] = field(default_factory=list)
    processes: dict[int, np.void] = field(default_factory=dict)  # rows of `sampled.PROCESS` by number, the newest
    threads: dict[int, np.void] = field(default_factory=dict)  # of `sampled.THREAD`
    quality: np.void = field(default_factory=lambda: np.zeros(1, sampled.QUALITY_OF)[0])
    problems: list[dict[str, Any]] = field(default_factory=list)
    until_ns: int = -1  # all samples that began before this have been read
    ended: bool = False
    _reader: spool.SpoolReader | None = None
    _fresh: dict[int, list[np.ndarray]] = field(default_factory=dict)

    def advance(self) -> None:
        """Read what is new."""
        if self._reader is None:
            if not self.path.is_file():
                return
            self._reader = spool.SpoolReader(self.path)
        for chunk in self._reader.chunks():
            self._add(chunk)

    def take(self, kind: int) -> np.ndarray:
        """The rows of chunks of this kind (FRAMES, STACKS, SAMPLES or ACCOUNTS) that have come since the last call."""
        parts = self._fresh.pop(kind, [])
        return np.concatenate(parts) if parts else np.zeros(0, _ROWS[kind])

    @property
    def is_damaged(self) -> bool:
        """Whether something in it did not match its checksum: what follows is lost."""
        return self._reader is not None and self._reader.damaged

    def _add(self, chunk: spool.Chunk) -> None:
        kind, payload = chunk.kind, chunk.payload
        if kind in _ROWS:
            dtype = _ROWS[kind]
            rows = np.frombuffer(payload, dtype, len(payload) // dtype.itemsize)
            self._add_rows(kind, rows)
        elif kind == sampled.POLL:
            self.until_ns = int(np.frombuffer(payload, "<u8", 1)[0])
        elif kind == sampled.OBJECTS:
            self._add_objects(payload)
        elif kind == sampled.CODES:
            self._add_codes(payload)
        elif kind == sampled.SETTINGS:
            self.settings = json.loads(payload)
        elif kind == sampled.PROBLEMS:
            self.problems += json.loads(payload)
        elif kind == sampled.END:
            self.ended = True

    def _add_rows(self, kind: int, rows: np.ndarray) -> None:
        if kind == sampled.PROCESSES:
            self.processes.update((int(row["process"]), row) for row in rows)
        elif kind == sampled.THREADS:
            self.threads.update((int(row["thread"]), row) for row in rows)
        elif kind == sampled.QUALITY:
            self.quality = rows[-1] if len(rows) else self.quality
        else:
            self._fresh.setdefault(kind, []).append(rows)

    def _add_objects(self, payload: bytes) -> None:
        at = 0
        while at + sampled.OBJECT.itemsize <= len(payload):
            head = np.frombuffer(payload, sampled.OBJECT, 1, at)[0]
            at += sampled.OBJECT.itemsize
            path = payload[at : at + int(head["path_bytes"])].decode("utf-8", "surrogateescape")
            at += _padded(int(head["path_bytes"]))
            build_id = head["build_id"].tobytes()[: int(head["build_id_bytes"])]
            self.objects.append(ObjectFile(path, build_id, int(head["mtime_ns"])))

    def _add_codes(self, payload: bytes) -> None:
        at = 0
        while at + sampled.CODE.itemsize <= len(payload):
            head = np.frombuffer(payload, sampled.CODE, 1, at)[0]
            at += sampled.CODE.itemsize
            lengths = [int(head[name]) for name in ("name_bytes", "file_bytes", "lines_bytes")]
            ends = np.cumsum([at, *lengths]).tolist()
            name, file, lines = (payload[a:b] for a, b in itertools.pairwise(ends))
            at += _padded(sum(lengths))
            self.codes.append(
                Code(
                    int(head["process"]), name.decode("utf-8", "replace"), file.decode("utf-8", "replace"),
                    int(head["first_line"]), int(head["python"]), lines,
                )
            )  # fmt: skip


def _padded(length: int) -> int:
    return -(-length // _PAD_BYTES) * _PAD_BYTES

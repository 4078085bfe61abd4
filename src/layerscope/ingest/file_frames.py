"""The frames of one file of a sampler, and what they are called.

They are collected while the program runs, and named all at once when somebody has to know: opening
libraries and debugging information beside the program would take its time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from layerscope.host import clock
from layerscope.ingest import waiting
from layerscope.ingest.frames import (
    JIT,
    KERNEL,
    NATIVE,
    OF_KERNEL,
    PYTHON,
    FrameNames,
)
from layerscope.model.sample_tables import CUT, LEFT_OUT
from layerscope.rawfile import jit_maps, sampler_file
from layerscope.sources.raw.stacks import ObjectFile, SampledFile

# Libraries that a program has made may be gone when it has ended.
_PASSING = ("/tmp/", "/var/tmp/", "/dev/shm/")


class FrameRows(NamedTuple):
    """Keys of frames, what their names tell (`Meaning`), and where the rows of each of those that
    were asked for end.
    """

    key: np.ndarray
    is_outer: np.ndarray
    evidence: np.ndarray
    end: np.ndarray


class FileFrames(Struct):
    """The frames of one file of a sampler, which counts them by itself; `raw`: the folder that it
    is in.
    """

    frames: FrameNames
    file: SampledFile
    raw: Path
    _new: list[np.ndarray] = field(default_factory=list)
    _objects: int = 0  # so many of the file's have been looked at
    # Of those that have names, by their numbers.
    keys: list[int] = field(default_factory=list)
    # By number of a frame the keys of the functions that are inlined there, from the outside in.
    inlined: dict[int, list[int]] = field(default_factory=dict)

    def add(self, rows: np.ndarray) -> None:
        """Take in new frames of the file, in the order of their numbers."""
        if len(rows):
            self._new.append(rows)
        for known in self.file.objects[self._objects :]:
            if known.path.startswith((*_PASSING, os.environ.get("TMPDIR") or _PASSING[0])):
                self.frames.symbols.keep_open(known.path)
        self._objects = len(self.file.objects)

    def name(self) -> None:
        """Give those names that have none yet."""
        if not self._new:
            return
        rows = np.concatenate(self._new)
        self._new.clear()
        keys = np.zeros(len(rows), np.int64)
        is_python = rows["kind"] == sampler_file.PYTHON
        python = np.flatnonzero(is_python)
        if len(python):
            keys[python] = self._python(rows["of"][python], rows["address"][python])
        for mine in _alike(rows, np.flatnonzero(~is_python)):
            first = rows[mine[0]]
            kind, of, addresses = int(first["kind"]), int(first["of"]), rows["address"][mine]
            if kind == sampler_file.NATIVE:
                keys[mine] = self._native(of, addresses, len(self.keys) + mine)
            else:
                keys[mine] = self._named(kind, of, addresses)
        self.keys += keys.tolist()

    def rows_of(self, frames: np.ndarray) -> FrameRows:
        """These frames, by their numbers, each followed by those that are inlined there."""
        count = np.ones(len(self.keys), np.int64)
        more = [len(inside) for inside in self.inlined.values()]
        count[list(self.inlined)] += np.array(more, np.int64)
        first = np.cumsum(count) - count
        keys = np.zeros(int(count.sum()), np.int64)
        keys[first] = self.keys
        is_inlined = np.ones(len(keys), np.bool_)
        is_inlined[first] = False
        for number, inside in self.inlined.items():
            inner = first[number] + 1
            keys[inner : inner + len(inside)] = inside
        meanings = list(map(self.frames.meaning_of, keys.tolist()))
        evidence = np.array([meaning.evidence for meaning in meanings], np.int64)
        # A helper that a compiler has inlined into `take_gil` is no work of its own.
        evidence[is_inlined] &= ~waiting.WORK
        is_outer = np.array([meaning.is_outer for meaning in meanings], np.bool_)
        row, end = _spread(first[frames], count[frames])
        return FrameRows(keys[row], is_outer[row], evidence[row], end)

    def _named(self, kind: int, of: int, addresses: np.ndarray) -> list[int]:
        """Keys of new frames of one code or process, or of the kernel."""
        if kind == sampler_file.JIT:
            pid = int(self.file.processes[of]["pid"]) if of in self.file.processes else 0
            return self.frames.jit(
                self.raw / jit_maps.FOLDER / f"perf-{pid}.map", addresses.tolist()
            )
        if kind == sampler_file.MADE:
            name = self.file.made[of]
            return [
                self.frames.once(NATIVE, name, JIT, object_=JIT, address=one)
                for one in addresses.tolist()
            ]
        if kind == sampler_file.KERNEL:
            return self._kernel(addresses)
        cut = LEFT_OUT if of == sampler_file.CUT_BETWEEN else CUT
        return [self.frames.once(NATIVE, cut, "")] * len(addresses)

    def _kernel(self, addresses: np.ndarray) -> list[int]:
        boot = self.file.settings.get("boot", "")
        if (
            not addresses.any() or not boot or boot != clock.boot()
        ):  # another kernel, or at other addresses
            return [self.frames.kernel] * len(addresses)
        found = self.frames.symbols.kernel(addresses)
        return [
            self.frames.once(OF_KERNEL, name, KERNEL, object_=KERNEL)
            if name
            else self.frames.kernel
            for name in found.name
        ]

    def _native(self, of: int, addresses: np.ndarray, numbers: np.ndarray) -> list[int]:
        """Keys of new frames of an object, which have these numbers."""
        known = self.file.objects[of]
        file = Path(known.path).name or known.path
        unnamed = file if file.startswith("[") else f"[{file}]"
        found = self.frames.symbols.native(known.path, known.build_id, addresses, known.mtime_ns)
        asked = addresses.tolist()
        for row, chain in found.inlined.items():
            inside = []
            for frame in chain:
                key = self._in_object(known, unnamed, asked[row], *frame)
                inside.append(key)
            number = int(numbers[row])
            self.inlined[number] = inside
        lines = found.line.tolist()
        frames = zip(asked, found.name, found.short, found.file, lines, strict=True)
        return [self._in_object(known, unnamed, *frame) for frame in frames]

    def _in_object(
        self,
        known: ObjectFile,
        unnamed: str,
        address: int,
        text: str,
        short: str,
        file: str | None,
        line: int,
    ) -> int:
        name = short or unnamed
        return self.frames.once(
            NATIVE,
            name,
            known.path,
            file,
            line if line >= 0 else None,
            text if text != name else None,
            known.path,
            known.build_id.hex() or None,
            address,
        )

    def _python(self, of: np.ndarray, addresses: np.ndarray) -> list[int]:
        """Keys of new frames of Python, which are of these code objects."""
        from layerscope.symbols import LineTable, lines_in_codes

        codes, which = np.unique(of, return_inverse=True)
        mine = [self.file.codes[code] for code in codes.tolist()]
        if self.frames.names_only:
            keys = [
                self.frames.once(PYTHON, code.name, code.file, code.file, code.first_line)
                for code in mine
            ]
            return [keys[at] for at in which.tolist()]
        tables = [LineTable(code.python, code.first_line, code.lines) for code in mine]
        lines = lines_in_codes(tables, which, addresses.astype(np.int64))
        return [
            self.frames.once(
                PYTHON, code.name, code.file, code.file, line if line >= 0 else code.first_line
            )
            for code, line in zip([mine[at] for at in which.tolist()], lines.tolist(), strict=True)
        ]


def _spread(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`count` places from each `first` on, one after the other, and where those of each end."""
    end = np.cumsum(count)
    begin = end - count
    shift = np.repeat(first - begin, count)
    places = np.arange(len(shift)) + shift
    return places, end


def _alike(rows: np.ndarray, some: np.ndarray) -> Iterator[np.ndarray]:
    """Which of `some` rows are of one kind and of one object, code or process."""
    if not len(some):
        return
    kind, owner = rows["kind"][some], rows["of"][some]
    group = kind.astype(np.int64) << 32 | owner
    order = np.argsort(group, kind="stable")
    is_first = np.diff(group[order], prepend=-1)
    firsts = np.flatnonzero(is_first)
    yield from np.split(some[order], firsts[1:])

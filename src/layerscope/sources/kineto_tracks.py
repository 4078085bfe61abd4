"""The tracks of a trace of Kineto: threads of the CPU, and streams of GPUs. Used by
`kineto`.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from layerscope.model.layers import STREAM
from layerscope.sources.imported import ImportedTrack
from layerscope.sources.trace_rows import by_pair, named
from layerscope.sources.trace_scan import NONE, Columns, ScannedTrace

_LEAST, _MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max
_WITHIN = re.compile(r"thread -?\d+ \((.*)\)", re.DOTALL)


class KinetoTracks:
    """Numbers tracks as they are asked for. `found`: what they are. A trace is of one process,
    whatever numbers of processes it has.
    """

    def __init__(self, trace: ScannedTrace, names: Columns) -> None:
        """No track so far."""
        self.found: list[ImportedTrack] = []
        self._scalars = trace.scalars
        self._names = named(trace, names, "thread_name")
        self._codes: dict[tuple[object, ...], int] = {}

    def threads(self, pid: np.ndarray, tid: np.ndarray) -> np.ndarray:
        """The track of each of these pairs of numbers of `scalars`."""
        threads = by_pair(pid, tid, self._thread)
        return threads

    def of_python(self, pid: np.ndarray, tid: np.ndarray) -> np.ndarray:
        """The track of the functions of Python of each of these threads: a range may begin in one
        function and end in another one, so they do not nest with operators.
        """
        return by_pair(pid, tid, self._python)

    def streams(
        self, pid: np.ndarray, tid: np.ndarray, device: np.ndarray, stream: np.ndarray
    ) -> np.ndarray:
        """The track of each of these streams; where their numbers are not told, they are pid and
        tid.
        """
        scalars = [_whole(one) for one in [*self._scalars, 0]]
        numbers = np.array(scalars, np.int64)
        has_device = device != NONE
        device = np.where(has_device, device, numbers[pid])
        has_stream = stream != NONE
        stream = np.where(has_stream, stream, numbers[tid])
        return by_pair(device, stream, self._stream)

    def with_numbers(self, numbers: dict[int, int]) -> list[ImportedTrack]:
        """The tracks with the framework's numbers of these threads."""
        for track, number in numbers.items():
            self.found[track] = replace(self.found[track], framework_thread=number)
        return self.found

    def _thread(self, pid: int, tid: int) -> int:
        """The track of a thread."""
        key = ("thread", pid, tid)
        if key in self._codes:
            return self._codes[key]
        thread = self._scalar(tid)
        name = self._names.get((pid, tid), "")
        within = _WITHIN.fullmatch(name)
        if within:
            name = within[1]
        if not name:
            name = _called(self._scalar(pid), thread)
        number = None
        if isinstance(thread, int) and _LEAST <= thread <= _MOST:
            number = thread
        track = ImportedTrack(0, name, number)
        return self._add(key, track)

    def _python(self, pid: int, tid: int) -> int:
        key = ("python", pid, tid)
        if key in self._codes:
            return self._codes[key]
        thread = self.found[self._thread(pid, tid)]
        return self._add(key, replace(thread, name=f"{thread.name}: Python"))

    def _stream(self, device: int, stream: int) -> int:
        key = (STREAM, device, stream)
        if key in self._codes:
            return self._codes[key]
        number = device if _LEAST <= device <= _MOST else None
        track = ImportedTrack(0, f"stream {stream}", kind=STREAM, device=number)
        return self._add(key, track)

    def _add(self, key: tuple[object, ...], track: ImportedTrack) -> int:
        """The number of a new track."""
        self._codes[key] = len(self.found)
        self.found.append(track)
        return self._codes[key]

    def _scalar(self, code: int) -> int | str:
        """A number or a text of the trace; -1: it has none."""
        if code < 0:
            return -1
        return self._scalars[code]


def _called(process: int | str, thread: int | str) -> str:
    """What stands for the name of a thread that has none."""
    if isinstance(thread, str):
        of_process = [process] if isinstance(process, str) else []
        return ": ".join(filter(None, [*of_process, thread])) or "no thread"
    return f"thread {thread}"


def _whole(value: int | str) -> int:
    """The number of a GPU or a stream; -1: it is none."""
    if not isinstance(value, int):
        return -1
    return value if abs(value) <= _MOST else -1

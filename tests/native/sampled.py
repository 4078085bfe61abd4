"""A sampler as small as it can be: opens events on the threads of a process and reads its area of
samples.

Only the layout of native/samples.h is known here, and how CPython writes down lines.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.native.door import Door

HEADER_BYTES = 32768
HEADER = np.dtype(
    [
        ("magic", "<u4"), ("version", "<u4"), ("pid", "<i4"), ("capacity", "<u4"), ("process_start", "<u8"),
        ("python", "<u4"), ("uses_timers", "<u4"), ("python_eval", "<u8"), ("python_runtime", "<u8"),
        ("has_handler", "<u4"), ("is_signalled", "<u4"), ("pad0", "V8"),
        ("reserved", "<u8"), ("samples", "<u8"), ("lost_full", "<u8"), ("lost_busy", "<u8"), ("handler_ns", "<u8"),
        ("handler_most_ns", "<u8"), ("foreign", "<u8"), ("codes", "<u8"), ("consumed", "<u8"),
    ]
)  # fmt: skip
HEAD = struct.Struct("<QIHH")
SAMPLE = struct.Struct("<QQiiIIII17Q")
CODE = struct.Struct("<IiIIII")
KIND_PAD, KIND_STACK, KIND_CODE, KIND_MADE, KIND_NAME = range(5)
STACK_CUT, FRAMES_CUT, STACK_NONE, TIMER = 1, 2, 4, 8
ENTRY = 1 << 31
BETWEEN = 0xFFFFFFFE
RSP, RIP = 7, 16
MAGIC = 0x5053534C
MORE_CODE = "(more code than is kept)"


@dataclass
class Code:
    """What a code object is called."""

    name: str
    file: str
    first_line: int
    lines: bytes

    def line(self, place: int) -> int | None:
        """The line of the instruction at `place`, as CPython finds it: its notation is the same in
        3.11 to 3.14.
        """
        if self == LEFT_OUT:
            return None
        code = (lambda: None).__code__.replace(
            co_firstlineno=self.first_line, co_linetable=self.lines
        )
        return next((line for start, end, line in code.co_lines() if start <= place < end), None)


LEFT_OUT = Code("", "", 0, b"")  # its place says how many frames are left out


@dataclass
class Sample:
    """One sample of a thread."""

    at_ns: int
    cpu_ns: int
    tid: int
    event: int
    count: int
    flags: int
    registers: tuple[int, ...]
    frames: list[
        tuple[Code, int, bool]
    ]  # the innermost first: code, place, whether a C frame begins with it
    stack: bytes

    def python(self) -> list[tuple[str, str, int | None]]:
        """(qualified name, file, line) of the frames of Python, the innermost first."""
        return [(code.name, code.file, code.line(place)) for code, place, _ in self.frames]

    def names(self) -> list[str]:
        """The qualified names alone."""
        return [code.name for code, _, _ in self.frames]


class Area:
    """One area of samples, which is read as the sampler reads it."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.header: Any = np.frombuffer(memory, HEADER, 1)[0]
        self.fields = np.frombuffer(memory, HEADER, 1)
        self.codes: dict[int, Code] = {}
        self.samples: list[Sample] = []

    def number(self, name: str) -> int:
        """A number of the header, as it is now."""
        return int(self.fields[name][0])

    def take(self) -> list[Sample]:
        """All samples so far, those that are new taken out of the area."""
        consumed, capacity = self.number("consumed"), self.number("capacity")
        while consumed < self.number("reserved"):
            at = HEADER_BYTES + consumed % capacity
            commit, size_bytes, kind, flags = HEAD.unpack_from(self.memory, at)
            if commit != consumed + 1:
                break
            assert size_bytes % 16 == 0
            assert at + size_bytes <= HEADER_BYTES + capacity
            if kind == KIND_CODE:
                self._take_code(at + HEAD.size, at + size_bytes)
            elif kind == KIND_STACK:
                self._take_sample(at + HEAD.size, at + size_bytes, flags)
            else:
                assert kind in (KIND_PAD, KIND_MADE, KIND_NAME)
            consumed += size_bytes
            self.fields["consumed"] = consumed
        return self.samples

    def _take_code(self, at: int, end: int) -> None:
        number, first_line, *sizes, _ = CODE.unpack_from(self.memory, at)
        at += CODE.size
        parts = []
        for size in sizes:
            parts.append(self.memory[at : at + size])
            at += size
        assert end - 16 < at <= end
        assert number not in self.codes
        self.codes[number] = Code(parts[0].decode(), parts[1].decode(), first_line, parts[2])

    def _take_sample(self, at: int, end: int, flags: int) -> None:
        at_ns, cpu_ns, tid, event, count, frames, stack_bytes, _, *registers = SAMPLE.unpack_from(
            self.memory, at
        )
        at += SAMPLE.size
        words = struct.unpack_from(f"<{2 * frames}I", self.memory, at)
        at += (8 * frames + 15) // 16 * 16
        stack = self.memory[at : at + stack_bytes]
        assert end - 16 < at + stack_bytes <= end
        assert all(code in self.codes or code == BETWEEN for code in words[::2])
        found = [
            (
                self.codes.get(words[2 * i], LEFT_OUT),
                words[2 * i + 1] % ENTRY,
                words[2 * i + 1] >= ENTRY,
            )
            for i in range(frames)
        ]
        self.samples.append(
            Sample(at_ns, cpu_ns, tid, event, count, flags, tuple(registers), found, stack)
        )


def areas(door: Door, pid: int) -> list[Area]:
    """The areas that the process `pid` has handed over so far."""
    found = [handed for (number, _), handed in list(door.handed.items()) if number == pid]
    return [Area(memory) for handed in found for memory in handed.samples]


class _Attributes(ctypes.Structure):
    """perf_event_attr of linux/perf_event.h, as much of it as is used: PERF_ATTR_SIZE_VER0."""

    _fields_ = [
        ("type", ctypes.c_uint32), ("size", ctypes.c_uint32), ("config", ctypes.c_uint64), ("period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64), ("read_format", ctypes.c_uint64), ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32), ("bp_type", ctypes.c_uint32), ("bp_addr", ctypes.c_uint64),
    ]  # fmt: skip


_SOFTWARE, _CPU_CLOCK, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1, 0, 1 << 5, 1 << 6
_PERF_EVENT_OPEN, _F_SETSIG, _F_SETOWN_EX, _F_SETFL, _O_ASYNC, _SIGURG, _OWNER_TID = (
    298,
    10,
    15,
    4,
    0o20000,
    23,
    0,
)
_libc = ctypes.CDLL(None, use_errno=True)


def open_event(tid: int, hz: int) -> int:
    """An event on thread `tid` that sends it SIGURG `hz` times in each second that it runs;
    OSError: it has ended.
    """
    flags = _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    attributes = _Attributes(
        _SOFTWARE, ctypes.sizeof(_Attributes), _CPU_CLOCK, 10**9 // hz, 0, 0, flags, 1
    )
    fd = _libc.syscall(_PERF_EVENT_OPEN, ctypes.byref(attributes), tid, -1, -1, 8)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    owner = struct.pack("<ii", _OWNER_TID, tid)
    for command, argument in ((_F_SETSIG, _SIGURG), (_F_SETOWN_EX, owner), (_F_SETFL, _O_ASYNC)):
        if _libc.fcntl(fd, command, argument):
            failed = ctypes.get_errno()
            os.close(fd)
            raise OSError(failed, "fcntl")
    return int(fd)


@dataclass
class Ticker:
    """Opens events on all threads of processes as they come, none with `hz` 0, and empties their
    areas.
    """

    door: Door
    pids: Callable[[], list[int]]
    hz: int = 1000
    events: dict[tuple[int, int], int] = field(default_factory=dict)
    found: dict[int, list[Area]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            for pid in self.pids():
                if self.hz:
                    self._open(pid)
                self.take(pid)

    def _open(self, pid: int) -> None:
        try:
            tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            return
        for tid in tids:
            if (pid, tid) not in self.events:
                try:
                    self.events[pid, tid] = open_event(tid, self.hz)
                except OSError:
                    self.events[pid, tid] = -1  # it has ended

    def take(self, pid: int) -> list[Area]:
        """The areas of a process, emptied."""
        memories = [
            m
            for (number, _), handed in list(self.door.handed.items())
            if number == pid
            for m in handed.samples
        ]
        known = self.found.setdefault(pid, [])
        known += [Area(memory) for memory in memories[len(known) :]]
        for area in known:
            area.take()
        return known

    def close(self) -> None:
        """Close all events, and take what is left."""
        self._stop.set()
        self._thread.join(10)
        for fd in self.events.values():
            if fd >= 0:
                os.close(fd)
        for pid in list(self.found):
            self.take(pid)

    def samples(self, pid: int) -> list[Sample]:
        """All samples of a process."""
        return [sample for area in self.found.get(pid, []) for sample in area.samples]


def with_children(pid: int) -> Callable[[], list[int]]:
    """`pid` and the processes that it has started, as they are now."""

    def now() -> list[int]:
        found, threads = [pid], Path(f"/proc/{pid}/task")
        with contextlib.suppress(OSError):  # it ends meanwhile
            for tid in os.listdir(threads):
                with contextlib.suppress(OSError):
                    found += [
                        int(word) for word in (threads / tid / "children").read_text().split()
                    ]
        return found

    return now

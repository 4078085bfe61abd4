"""Who ran while `perf.data` was recorded: processes, threads and what was mapped where, as its
records tell in time.

Numbers of processes and threads are used again, and a process that executes another program has
other mappings from then on: a sample is looked up by number and time.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.model.distinct import distinct
from layerscope.sources import perf_records as rec
from layerscope.sources.perf_file import PerfFile

_KERNEL_PID = -1
_MODE_KERNEL, _MODE_GUEST_KERNEL = 1, 4
_MOST_ADDRESS = (1 << 64) - 1
_U64 = struct.Struct("<QQQ").unpack_from
_PIDS = struct.Struct("<ii").unpack_from
# What has no file, and changes all the time: it does not make other mappings of a process.
ANONYMOUS = ("//anon", "[", "/dev/zero", "/SYSV", "anon_inode:")


class Object(Struct, frozen=True):
    """A file with code: its path as the kernel told it, its build in hexadecimal digits, its inode;
    "" and 0: not told.

    `device` is major << 8 | minor, as the kernel has it in its maps.
    """

    path: str
    build_id: str = ""
    device: int = 0
    inode: int = 0


class Mapping(Struct, frozen=True):
    """Addresses from `start` up to `end` show `object` from `offset` on."""

    start: int
    end: int
    offset: int
    object: Object


class AddressSpace(Struct):
    """The mappings of a process from `start_ns` on, by where they start. None of them overlap."""

    pid: int
    process: int
    start_ns: int
    mappings: list[Mapping] = field(default_factory=list)

    def _overlapped(self, mapping: Mapping) -> slice:
        """The place of those mappings that are where `mapping` comes."""
        mappings = self.mappings
        first = bisect_right(mappings, mapping.start, key=lambda one: one.end)
        behind = bisect_left(mappings, mapping.end, first, key=lambda one: one.start)
        return slice(first, behind)

    def conflicts(self, mapping: Mapping) -> bool:
        """Whether something else was where `mapping` comes: a library that was loaded in place of
        another.
        """
        is_anonymous = mapping.object.path.startswith(ANONYMOUS)
        return any(
            (one.object, one.offset) != (mapping.object, mapping.offset)
            if one.start == mapping.start
            else one.object != mapping.object
            and not is_anonymous
            and not one.object.path.startswith(ANONYMOUS)
            for one in self.mappings[self._overlapped(mapping)]
        )

    def put(self, mapping: Mapping) -> None:
        """Map it; of what was there stays what lies before and behind it."""
        where = self._overlapped(mapping)
        pieces = [mapping]
        for one in self.mappings[where]:
            if one.start < mapping.start:
                pieces.insert(0, replace(one, end=mapping.start))
            if one.end > mapping.end:
                offset = (one.offset + mapping.end - one.start) & _MOST_ADDRESS
                pieces.append(replace(one, start=mapping.end, offset=offset))
        self.mappings[where] = pieces


class PerfProcess(Struct):
    """A process. `start_ns`: when perf first knew of it; 0: before."""

    pid: int
    ppid: int | None
    start_ns: int
    end_ns: int | None = None


class PerfThread(Struct):
    """A thread. `name`: its last one."""

    tid: int
    process: int
    start_ns: int
    name: str = ""
    end_ns: int | None = None


class Threads(Struct):
    """Everyone that a file tells of, and the mappings of the kernel."""

    processes: list[PerfProcess] = field(default_factory=list)
    threads: list[PerfThread] = field(default_factory=list)
    spaces: list[AddressSpace] = field(default_factory=list)
    kernel: list[Mapping] = field(default_factory=list)
    _process: dict[int, int] = field(default_factory=dict)
    _thread: dict[int, int] = field(default_factory=dict)
    _space: dict[int, AddressSpace] = field(default_factory=dict)

    def process(self, pid: int, now_ns: int = 0, ppid: int | None = None) -> int:
        """The process that has this number now."""
        known = self._process.get(pid)
        if known is not None:
            return known
        number = len(self.processes)
        self._process[pid] = number
        process = PerfProcess(pid, ppid, now_ns)
        self.processes.append(process)
        self._open_space(pid, now_ns)
        return number

    def thread(self, pid: int, tid: int, now_ns: int = 0) -> PerfThread:
        """The thread that has this number now."""
        process = self.process(pid, now_ns)
        place = self._thread.get(tid)
        if place is not None and self.threads[place].process == process:
            return self.threads[place]
        thread = PerfThread(tid, process, now_ns)
        self._thread[tid] = len(self.threads)
        self.threads.append(thread)
        return thread

    def name(self, pid: int, tid: int, name: str, is_exec: bool, now_ns: int) -> None:
        """A thread has another name; with `is_exec` its process runs another program."""
        self.thread(pid, tid, now_ns).name = name
        if is_exec:
            self._open_space(pid, now_ns)

    def fork(self, pid: int, ppid: int, tid: int, ptid: int, now_ns: int) -> None:
        """A thread or a process began."""
        parent = self._thread.get(ptid)
        name = self.threads[parent].name if parent is not None else ""
        known = self._thread.get(tid)
        is_again = known is not None and self.threads[known].end_ns is not None
        is_process = pid != ppid and pid == tid
        if is_process and (pid not in self._process or is_again):
            self._process.pop(pid, None)
            space_of_parent = self._space.get(ppid)
            mappings = list(space_of_parent.mappings) if space_of_parent is not None else []
            self.process(pid, now_ns, ppid)
            self._space[pid].mappings = mappings
        if is_again:
            self._thread.pop(tid, None)
        thread = self.thread(pid, tid, now_ns)
        thread.name = thread.name or name

    def exit(self, pid: int, tid: int, now_ns: int) -> None:
        """A thread ended, and with the first one its process."""
        thread = self.thread(pid, tid, now_ns)
        thread.end_ns = now_ns
        if pid == tid:
            number = self.process(pid)
            self.processes[number].end_ns = now_ns

    def map(self, pid: int, mapping: Mapping, now_ns: int) -> None:
        """A process has another mapping."""
        self.process(pid, now_ns)
        space = self._space[pid]
        if space.conflicts(mapping):
            mappings = list(space.mappings)
            space = self._open_space(pid, now_ns)
            space.mappings = mappings
        is_empty = mapping.start >= mapping.end
        if not is_empty:
            space.put(mapping)

    def _open_space(self, pid: int, now_ns: int) -> AddressSpace:
        """What a process has mapped, from now on."""
        process = self._process[pid]
        space = AddressSpace(pid, process, now_ns)
        self._space[pid] = space
        self.spaces.append(space)
        return space

    def tracks(self, tid: np.ndarray, pid: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The thread of each sample, an index into `threads`; those that nothing tells of are
        added.
        """
        for own, thread in _pairs(pid, tid):
            if thread not in self._thread:
                self.thread(own, thread)
        return _at_time(tid, time, [(one.tid, one.start_ns) for one in self.threads])

    def at(self, tid: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The thread that had each number at that time, an index into `threads`; -1: nothing tells
        of it.
        """
        found: np.ndarray = np.where(
            np.isin(tid, list(self._thread)),
            _at_time(tid, time, [(one.tid, one.start_ns) for one in self.threads]),
            -1,
        )
        return found

    def spaces_of(self, pid: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The mappings that each sample had, an index into `spaces`."""
        known = []
        for space in self.spaces:
            known.append((space.pid, space.start_ns))
        return _at_time(pid, time, known)


def _pairs(pid: np.ndarray, tid: np.ndarray) -> list[tuple[int, int]]:
    """The distinct pairs."""
    high = pid.astype(np.int64) << 32
    low = tid.astype(np.int64) & 0xFFFFFFFF
    packed = distinct(high | low)
    pids = packed >> 32
    tids = packed.astype(np.int32)  # the lower half
    return list(zip(pids.tolist(), tids.tolist(), strict=True))


def _at_time(number: np.ndarray, time: np.ndarray, known: list[tuple[int, int]]) -> np.ndarray:
    """Of those with each number, (number, since when), the one at that time; before all of them the
    first.
    """
    by_number: dict[int, list[tuple[int, int]]] = {}
    for place, (key, start_ns) in enumerate(known):
        by_number.setdefault(key, []).append((start_ns, place))
    found = np.zeros(len(number), np.int32)
    for key, rows in rec.groups(number):
        if key not in by_number:
            continue
        starts, places = zip(*sorted(by_number[key]), strict=True)
        starts_ns = np.array(starts, np.int64)
        at = np.searchsorted(starts_ns, time[rows], side="right") - 1
        at = np.maximum(at, 0)
        found[rows] = np.array(places, np.int32)[at]
    return found


# -- reading ---------------------------------------------------------------------------------------


def threads(file: PerfFile) -> Threads:
    """Everyone that `file` tells of."""
    found, builds = Threads(), builds_of(file.build_ids)
    told = []
    types = (rec.MMAP, rec.MMAP2, rec.COMM, rec.FORK, rec.EXIT)
    for stream, (records, rows) in enumerate(rec.of_type(file, *types)):
        time, _, _ = rec.moments(file, records, rows)
        told += [
            (now, stream, row, records)
            for now, row in zip(time.tolist(), rows.tolist(), strict=True)
        ]
    # What perf had found out before it began comes first, whatever its time.
    for now_ns, _, row, records in sorted(told, key=lambda one: one[:3]):
        _take(
            found,
            int(records.type[row]),
            int(records.misc[row]),
            records.bytes(row),
            now_ns,
            builds,
        )
    return found


def _take(
    found: Threads, type_: int, misc: int, content: bytes, now_ns: int, builds: dict[str, str]
) -> None:
    """Take in one record. One that is too short is left out."""
    if len(content) < 16:
        return
    pid, second = _PIDS(content, 8)
    if type_ == rec.COMM:
        found.name(pid, second, _text(content[16:]), bool(misc & rec.COMM_EXEC), now_ns)
    elif type_ in (rec.FORK, rec.EXIT):
        if len(content) < 32:
            return
        tid, ptid = _PIDS(content, 16)
        (now_ns,) = struct.unpack_from("<q", content, 24)
        if type_ == rec.FORK:
            found.fork(pid, second, tid, ptid, now_ns)
        else:
            found.exit(pid, tid, now_ns)
    elif len(content) >= (72 if type_ == rec.MMAP2 else 40):
        mapping = _mapping(type_, misc, content, builds)
        if pid == _KERNEL_PID or misc & rec.MODE_MASK == _MODE_KERNEL:
            found.kernel.append(mapping)
        elif misc & rec.MODE_MASK < _MODE_GUEST_KERNEL and (
            type_ == rec.MMAP2 or not misc & rec.MMAP_DATA
        ):
            found.map(pid, mapping, now_ns)


def _mapping(type_: int, misc: int, content: bytes, builds: dict[str, str]) -> Mapping:
    start, length, offset = _U64(content, 16)
    end = min(start + length, _MOST_ADDRESS)
    if type_ == rec.MMAP:
        path = _text(content[40:])
        build = builds.get(path, "")
        return Mapping(start, end, offset, Object(path, build))
    path = _text(content[72:])
    if misc & rec.MMAP_BUILD_ID:
        build_bytes = min(content[40], 20)
        build = content[44 : 44 + build_bytes].hex()
        return Mapping(start, end, offset, Object(path, build))
    build = builds.get(path, "")
    major, minor, inode = struct.unpack_from("<IIQ", content, 40)
    object_ = Object(path, build, major << 8 | minor, inode)
    return Mapping(start, end, offset, object_)


def builds_of(content: bytes) -> dict[str, str]:
    """The builds of files by their path, as perf writes them at its end."""
    found, at = {}, 0
    while at + 36 <= len(content):
        _, misc, length = struct.unpack_from("<IHH", content, at)
        if length < 36:
            break
        record = content[at : at + length]
        has_size = misc >> 15 & 1
        build_bytes = min(content[at + 32], 20) if has_size else 20
        path = _text(record[36:])
        found[path] = record[12 : 12 + build_bytes].hex()
        at += length
    return found


def _text(content: bytes) -> str:
    """A text up to its end, which is a 0."""
    text, _, _ = content.partition(b"\0")
    return text.decode("utf-8", "replace")

"""Counters of a process from the kernel's own accounting: CPU time, page faults, memory, I/O, and
of its control group and the machine.

Clock: CLOCK_MONOTONIC. Read from outside, so the program pays nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import astuple

from layerscope.host.cgroup import Group, group_of
from layerscope.rawfile.counters import OF_GROUP, packed, read

_GROWING = {"throttled", "throttled_ns"}

# What costs a file more, or changes slowly, is read this often.
SLOW_NS = 1_000_000_000
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OF_MEMORY = ("rss_bytes", "threads")
# Lines of /proc/PID/status (proc_pid_status(5)): what is of no file, of files, and shared.
_MEMORY = {
    b"VmHWM": "rss_peak_bytes",
    b"RssAnon": "rss_anonymous_bytes",
    b"RssFile": "rss_file_bytes",
    b"RssShmem": "rss_shared_bytes",
}
# Lines of /proc/PID/io (proc_pid_io(5)).
_IO = {
    b"rchar": "rchar_bytes",
    b"wchar": "wchar_bytes",
    b"read_bytes": "storage_read_bytes",
    b"write_bytes": "storage_written_bytes",
}


def process_clock(pid: int) -> int:
    """The clock id of the CPU time of process `pid` (clock_getcpuclockid(3): bits of the kernel's
    ABI).
    """
    return (~pid << 3) | 2


class CounterSource(Struct):
    """A process whose counters are read; memory's peak and I/O every `slow_ns`.

    `unread`: files of /proc/PID that it could not be read from, and why. `base`: what it had used
    before the recording began, by name: that is left out.
    """

    pid: int
    base: Mapping[str, int] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    slow_ns: int = SLOW_NS
    _next_ns: int = 0

    def sample(self) -> bytes:
        """One reading of every counter that is due as a chunk holds it; empty when the process is
        gone.
        """
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                # The name in parentheses may hold spaces and parentheses itself: split after the
                # last one.
                fields = file.read().rpartition(b")")[2].split()
            cpu_ns = time.clock_gettime_ns(process_clock(self.pid))
        except (OSError, OverflowError):
            return b""
        # proc(5): field 3 is fields[0]; 10 minflt, 12 majflt, 14 utime, 15 stime, 20 num_threads,
        # 24 rss.
        values = {
            "cpu_ns": cpu_ns,
            "user_ns": int(fields[11]) * _TICK_NS,
            "system_ns": int(fields[12]) * _TICK_NS,
            "faults_minor": int(fields[7]),
            "faults_major": int(fields[9]),
            "rss_bytes": int(fields[21]) * _PAGE_BYTES,
            "threads": int(fields[17]),
        }
        at_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if (
            fields[0] == b"Z"
        ):  # it has ended and is not reaped: its memory and its threads are gone, the rest is final
            values = {name: value for name, value in values.items() if name not in _OF_MEMORY}
            self._next_ns = at_ns
        if at_ns >= self._next_ns:
            self._next_ns = at_ns + self.slow_ns
            values |= self._memory() | self._io()
        for name in values.keys() & self.base.keys():
            values[name] = max(values[name] - self.base[name], 0)
        return packed(at_ns, values)

    def _memory(self) -> dict[str, int]:
        """The largest resident size so far, and of what the present one is made."""
        found = {}
        for line in self._lines("status"):
            name, _, value = line.partition(b":")
            if name in _MEMORY:
                found[_MEMORY[name]] = int(value.split()[0]) * 1024
        return found

    def _io(self) -> dict[str, int]:
        found = {}
        for line in self._lines("io"):
            name, _, value = line.partition(b":")
            if name in _IO:
                found[_IO[name]] = int(value)
        return found

    def _lines(self, name: str) -> list[bytes]:
        try:
            with open(f"/proc/{self.pid}/{name}", "rb") as file:
                return file.read().splitlines()
        except FileNotFoundError as error:
            if os.path.exists(f"/proc/{self.pid}/stat"):
                self.unread[name] = str(error.strerror)
        except ProcessLookupError:
            pass
        except OSError as error:
            self.unread[name] = str(error.strerror)
        return []


def used_so_far(pid: int) -> dict[str, int]:
    """What the process has used so far, by the names of the counters that only grow."""
    readings = read(sample(pid))
    grow = {"cpu_ns", "user_ns", "system_ns", "faults_minor", "faults_major", *_IO.values()}
    return {name: value for _, name, value, _ in readings if name in grow}


def sample(pid: int) -> bytes:
    """One reading of every counter of `pid` as a chunk holds it; empty when it is gone."""
    return CounterSource(pid).sample()


class GroupSource(Struct):
    """The control group of a process, which may move to another one. Throttling counts from the
    first sample on.
    """

    pid: int
    root: Path = Path("/")
    slow_ns: int = SLOW_NS
    group: Group = field(default_factory=Group)
    _next_ns: int = 0
    _told: bytes = b""
    _last: dict[str, int] = field(default_factory=dict)  # what the group said
    _grown: dict[str, int] = field(default_factory=dict)

    def look(self) -> tuple[Path, ...]:
        """Where the process is now: a key that is the same for all processes of a group, empty
        where there is none.
        """
        try:
            with open(self.root / "proc" / str(self.pid) / "cgroup", "rb") as file:
                told = file.read()
        except OSError:  # it is gone
            return self.group.key
        if told != self._told:
            self._told, self._last = told, {}
            self.group = group_of(self.pid, self.root)
        return self.group.key

    def sample(self) -> bytes:
        """One reading of what the group has used, as a chunk holds it; empty where nothing is
        told or due.
        """
        at_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if at_ns < self._next_ns:
            return b""
        self._next_ns = at_ns + self.slow_ns
        pairs = zip(OF_GROUP, astuple(self.group.usage()), strict=True)
        values: dict[str, int] = {name: value for name, value in pairs if value is not None}
        for name in _GROWING.intersection(values):
            grown = values[name] - self._last.get(name, values[name])
            self._last[name] = values[name]
            values[name] = self._grown[name] = self._grown.get(name, 0) + max(grown, 0)
        return packed(at_ns, values)


class MachineSource(Struct):
    """The machine, whoever uses it, since it was started."""

    root: Path = Path("/")
    slow_ns: int = SLOW_NS
    _next_ns: int = 0

    def sample(self) -> bytes:
        """One reading as a chunk holds it; empty where nothing is told or due."""
        at_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if at_ns < self._next_ns:
            return b""
        self._next_ns = at_ns + self.slow_ns
        return packed(at_ns, self._cpu_time() | self._pressure())

    def _cpu_time(self) -> dict[str, int]:
        """Of all CPUs, by the first line of /proc/stat (proc(5)): user, nice, system, idle, iowait,
        irq, softirq, steal.
        """
        try:
            with open(self.root / "proc/stat", "rb") as file:
                ticks = [int(word) for word in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return {}
        if len(ticks) < 8:
            return {}
        user, nice, system, _, _, irq, softirq, steal = ticks
        busy_ns = (user + nice + system + irq + softirq) * _TICK_NS
        return {"machine_cpu_ns": busy_ns, "machine_stolen_ns": steal * _TICK_NS}

    def _pressure(self) -> dict[str, int]:
        """How long some task waited for a CPU, storage or memory (kernel documentation, "PSI":
        `total` in microseconds).
        """
        found = {}
        for resource in ("cpu", "io", "memory"):
            try:
                with open(self.root / "proc/pressure" / resource, "rb") as file:
                    some = file.readline()
                found[f"machine_{resource}_pressure_ns"] = int(some.rpartition(b"=")[2]) * 1000
            except (OSError, ValueError):
                continue
        return found

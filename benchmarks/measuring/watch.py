"""Looks at a recording from outside while it runs: its processes' CPU and memory, when they end,
and its size.
"""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from layerscope.capture.counters import process_clock

ROLES = {
    "layerscope.capture.drainer": "drainer",
    "_convert": "converter",
    "torch/inside/probe.py": "probe",
}


@dataclass(frozen=True)
class Sample:
    """One look at one process."""

    at_ns: int
    cpu_ns: int
    rss_bytes: int


class Watch(threading.Thread):
    """Follows the session `pid` and its children by role: session, program, drainer, converter,
    probe.

    `folder` is the recording, whose size is followed too.
    """

    def __init__(self, pid: int, every_s: float, folder: Path) -> None:
        super().__init__(daemon=True)
        self.samples: dict[str, list[Sample]] = {}
        self.folder_bytes: list[tuple[int, int]] = []  # (monotonic ns, bytes)
        self.ended_ns: dict[str, int] = {}
        self.cpu_at_program_end_ns = 0
        self._every_s = every_s
        self._folder = folder
        self._fds: dict[int, int] = {}
        self._over: set[int] = set()
        self._pids = {pid: "session"}
        self._session = pid

    def run(self) -> None:
        """Until the session ends."""
        poll = select.poll()
        self._follow(self._session, "session", poll)
        while "session" not in self.ended_ns:
            for fd, _ in poll.poll(self._every_s * 1000):
                pid = self._fds[fd]
                role = self._pids[pid]
                self._over.add(pid)
                self.ended_ns[role] = time.monotonic_ns()
                poll.unregister(fd)
                os.close(fd)
                if role == "program":
                    self.cpu_at_program_end_ns = sum(_cpu_ns(pid) for pid in self._pids)
            self._look()
            self._find(poll)

    def _follow(self, pid: int, role: str, poll: select.poll) -> None:
        with suppress(OSError):
            fd = os.pidfd_open(pid)
            self._fds[fd] = pid
            self._pids[pid] = role
            poll.register(fd, select.POLLIN)

    def _find(self, poll: select.poll) -> None:
        """New children of the session."""
        with suppress(psutil.Error):
            session = psutil.Process(self._session)
            own = session.cmdline()
            for child in session.children():
                with suppress(psutil.Error):
                    words = child.cmdline()
                    if child.pid in self._pids or words == own or not words:
                        continue  # between fork and exec a child looks like its parent
                    role = next(
                        (
                            role
                            for word in words
                            for mark, role in ROLES.items()
                            if word.endswith(mark)
                        ),
                        "program",
                    )
                    self._follow(child.pid, role, poll)

    def _look(self) -> None:
        for pid, role in self._pids.items():
            rss = (
                0 if pid in self._over else _rss_bytes(pid)
            )  # in hours a number may come round again
            if rss:
                self.samples.setdefault(role, []).append(
                    Sample(time.monotonic_ns(), _cpu_ns(pid), rss)
                )
        self.folder_bytes.append((time.monotonic_ns(), folder_bytes(self._folder)))

    def peak_rss_bytes(self, role: str) -> int:
        """The most memory that one of the role was seen with."""
        return max((sample.rss_bytes for sample in self.samples.get(role, [])), default=0)

    def between(self, role: str, begin_ns: int, end_ns: int) -> list[Sample]:
        """The samples of a role in a span of time."""
        return [
            sample for sample in self.samples.get(role, []) if begin_ns <= sample.at_ns <= end_ns
        ]


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`; those that go while one looks do not count."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _cpu_ns(pid: int) -> int:
    try:
        return time.clock_gettime_ns(process_clock(pid))
    except (OSError, OverflowError):
        return 0


def _rss_bytes(pid: int) -> int:
    """0 for a process that is gone or has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0

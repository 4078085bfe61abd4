"""One recorded process as the drainer sees it: its page, rings, names and raw file."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import time
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.capture import counters
from layerscope.host.clock import ahead_ns, monotonic_clock
from layerscope.model.secrets import mask
from layerscope.rawfile import layout, raw_file
from layerscope.rawfile.sums import RawTotals

# Messages of a process may still be under way when it is already dead.
LINGER_S = 0.5


class Ring:
    """One shared ring, seen from outside."""

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self.memory = mmap.mmap(fd, size)
        self.header: Any = np.frombuffer(self.memory, layout.RING, 1)[0]
        header_bytes, record_bytes = layout.RING_HEADER, layout.RECORD.itemsize
        self.capacity = (size - header_bytes) // record_bytes
        self.records = np.frombuffer(self.memory, layout.RECORD, self.capacity, header_bytes)
        # Scalars of these views are single aligned 8-byte loads and stores.
        self.published = np.frombuffer(self.memory, "<u8", 1, 64)
        self.consumed = np.frombuffer(self.memory, "<u8", 1, 128)
        self.index = int(self.header["index"])

    def waiting(self) -> int:
        """Number of records that wait to be taken."""
        return int(self.published[0]) - int(self.consumed[0])

    def abandoned(self) -> tuple[int, int, int]:
        """What the ring holds and nobody will take: spans, and the losses that it counts (ring
        full, too deep).
        """
        records = self.take(int(self.published[0]))
        is_span = records["kind"] < layout.FIRST_SPECIAL
        losses = records[records["kind"] == layout.LOST]
        full = int(self.header["lost_full"]) + int(losses["name"].sum())
        deep = int(self.header["lost_deep"]) + int(losses["module"].sum())
        return int(is_span.sum()), full, deep

    def take(self, until: int) -> np.ndarray:
        """A copy of the records from `consumed` up to ordinal `until`."""
        first = int(self.consumed[0]) % self.capacity
        last = until % self.capacity
        if until == int(self.consumed[0]):
            return np.zeros(0, layout.RECORD)
        if last > first:
            return self.records[first:last].copy()
        return np.concatenate([self.records[first:], self.records[:last]])


class NamesSegment:
    """One shared segment of names."""

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self.memory = mmap.mmap(fd, size)
        segment = np.frombuffer(self.memory, "<u4", 1, 8)
        self.segment = int(segment[0])
        self._used = np.frombuffer(self.memory, "<u8", 1, 16)
        self.taken = 0

    def fresh(self) -> bytes:
        """The bytes that were published since the last call; `accept` says that they are safe."""
        start = layout.NAMES_HEADER + self.taken
        return self.memory[start : layout.NAMES_HEADER + int(self._used[0])]


class DrainedProcess:
    """One recorded process: its page, rings, names and raw file."""

    def __init__(self, pid: int, start_ns: int, folder: Path) -> None:
        self.pid = pid
        self.start_ns = start_ns
        self.page: Any = None
        self.rings: list[Ring] = []
        self.segments: list[NamesSegment] = []
        self.totals = RawTotals()
        self.sealed: dict[int, int] = {}  # by ring, how far a drainer before us got
        self.file = raw_file.SpoolWriter(folder / "spool")
        self.dead_since: float | None = None
        self.ahead_ns = 0  # as long as it is not known
        self.thread_names: dict[int, list[str]] = {}  # by thread id, what each look at it found
        self.counters = counters.CounterSource(pid)
        self.group = counters.GroupSource(pid)
        self.has_reported_rank = False
        self._pidfd = -1
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(pid)

    def restore(self, chunk: raw_file.Chunk) -> None:
        """Take over what a drainer before us wrote."""
        if chunk.kind == raw_file.RECORDS:
            self.totals.add(np.frombuffer(chunk.payload, layout.RECORD))
        elif chunk.kind == raw_file.TOTALS:
            self.totals.restore(chunk.payload)
        if chunk.kind in (raw_file.RECORDS, raw_file.STRIPPED):
            self.sealed[chunk.key] = chunk.first + chunk.count

    def describe(self) -> bytes:
        """What the raw file says about the process."""
        about: dict[str, Any] = {"pid": self.pid, "start_ns": self.start_ns, "clock": "monotonic"}
        about["kinds"] = layout.SPAN_KINDS
        about["monotonic_clock"] = monotonic_clock()
        self.ahead_ns = about["ahead_ns"] = ahead_ns(self.pid) or self.ahead_ns
        try:
            command_line = Path(f"/proc/{self.pid}/cmdline").read_bytes()
            about["ppid"] = int(
                Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[1]
            )
        except (OSError, IndexError):
            command_line = b""
        if self.page is not None:
            about["clock"] = "tsc" if int(self.page["clock_is_tsc"]) else "monotonic"
            about["library"] = bytes(self.page["library"]).decode("utf-8", "replace")
            command_line = bytes(self.page["command_line"]) or command_line
            about.setdefault("ppid", int(self.page["ppid"]))
            if self.has_rank():
                self.has_reported_rank = True
                about |= {
                    "rank": int(self.page["rank"]),
                    "world_size": int(self.page["world_size"]),
                }
        about["argv"] = mask(
            [part.decode("utf-8", "replace") for part in command_line.rstrip(b"\0").split(b"\0")]
        )
        return json.dumps(about).encode()

    def has_rank(self) -> bool:
        """Whether it is known by now to be one of a distributed job; a rank without the size of its
        world is none.
        """
        return (
            self.page is not None
            and int(self.page["rank"]) >= 0
            and int(self.page["world_size"]) > 0
        )

    def is_gone(self) -> bool:
        """Whether the process has ended and what it sent has had time to arrive."""
        if self.dead_since is None and self.has_ended():
            self.dead_since = time.monotonic()
        return self.dead_since is not None and time.monotonic() - self.dead_since > LINGER_S

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        if self._pidfd < 0:
            return not Path(f"/proc/{self.pid}").exists()
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        events = poll.poll(0)
        return bool(events)

    def close(self) -> None:
        """Let go of everything but the memory, which goes with the last view of it."""
        self.file.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)

"""One recorded process as the drainer sees it: its page, rings, names and raw file."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.capture import counters
from layerscope.host.clock import ahead_ns, monotonic_clock
from layerscope.model.secrets import mask
from layerscope.rawfile import layout, raw_file
from layerscope.rawfile.page import ProcessPage

if TYPE_CHECKING:
    from layerscope.capture.rings import NamesSegment, Ring, SpanSums

# Messages of a process may still be under way when it is already dead.
LINGER_S = 0.5


class DrainedProcess:
    """One recorded process: its page, rings, names and raw file."""

    def __init__(
        self, pid: int, start_ns: int, folder: Path, base: Mapping[str, int] | None = None
    ) -> None:
        self.pid = pid
        self.start_ns = start_ns
        self.page: ProcessPage | None = None
        self.rings: list[Ring] = []
        self.segments: list[NamesSegment] = []
        # Exact sums of its spans, from the first ring on, or of a drainer before us.
        self.sums: SpanSums | None = None
        self.sealed: dict[int, int] = {}  # by ring, how far a drainer before us got
        self.file = raw_file.SpoolWriter(folder / "spool")
        self.dead_since: float | None = None
        self.ahead_ns = 0  # as long as it is not known
        self.thread_names: dict[int, list[str]] = {}  # by thread id, what each look at it found
        self.counters = counters.CounterSource(pid, base or {})
        self.group = counters.GroupSource(pid)
        self.reported: dict[str, Any] = {}
        self._pidfd = -1
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(pid)

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
            about["clock"] = "tsc" if self.page.number("clock_is_tsc") else "monotonic"
            about["library"] = self.page.text("library").decode("utf-8", "replace")
            command_line = self.page.text("command_line") or command_line
            about.setdefault("ppid", self.page.number("ppid"))
            self.reported = self.place_in_job()
            about |= self.reported
        about["argv"] = mask(
            [part.decode("utf-8", "replace") for part in command_line.rstrip(b"\0").split(b"\0")]
        )
        return json.dumps(about).encode()

    def place_in_job(self) -> dict[str, Any]:
        """What is known by now of its place in a distributed job: its rank, which without the size
        of its world is none, or its role.
        """
        place: dict[str, Any] = {}
        if self.page is None:
            return place
        rank, world_size = self.page.number("rank"), self.page.number("world_size")
        if rank >= 0 and world_size > 0:
            place |= {"rank": rank, "world_size": world_size}
        role = self.page.text("role").decode("utf-8", "replace")
        return {**place, "role": role} if role else place

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

"""Control groups with a limit of CPU time, and a process of many threads that all want a CPU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PERIOD_US = 100_000
_PATIENCE_S = 60.0
# zlib gives up the interpreter's lock while it works: all threads run at once.
_SPIN = """
import sys, threading, zlib
data = bytes(1 << 22)
def spin():
    while True:
        zlib.crc32(data)
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=spin, daemon=True).start()
print("ready", flush=True)
spin()
"""


class CpuGroup:
    """A control group of `cpus` CPUs, of version 1 or 2, until the end of a `with`; skips the test
    where none can be made.
    """

    def __init__(self, cpus: float) -> None:
        root, name = Path("/sys/fs/cgroup"), f"layerscope-test-{os.getpid()}"
        is_v2 = (root / "cgroup.controllers").exists()
        self.folder = root / name if is_v2 else root / "cpu" / name
        self._time_ns = ("throttled_usec", 1000) if is_v2 else ("throttled_time", 1)
        quota = str(round(cpus * PERIOD_US))
        # The largest weight: whatever else runs here, its threads get what they are granted, and
        # want more.
        limits = (
            {"cpu.max": f"{quota} {PERIOD_US}", "cpu.weight": "10000"}
            if is_v2
            else {"cpu.cfs_quota_us": quota, "cpu.shares": "262144"}
        )
        try:
            self.folder.mkdir()
            for file, value in limits.items():
                (self.folder / file).write_text(value)
        except OSError as error:
            self.remove()
            pytest.skip(f"no control group can be made: {error}")

    def __enter__(self) -> CpuGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def words(self) -> tuple[str, ...]:
        """What to put in front of a command that shall run in it."""
        return "sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"

    def enter(self) -> None:
        """Put the calling process into it."""
        (self.folder / "cgroup.procs").write_text("0")

    def counted(self) -> tuple[int, int, int]:
        """Periods, those in which it was throttled, and for how many ns: by cpu.stat itself."""
        words = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        name, factor = self._time_ns
        return int(words["nr_periods"]), int(words["nr_throttled"]), int(words[name]) * factor

    def remove(self) -> None:
        """Remove it; a process that was killed may take a moment to leave it."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def spinning(threads: int, group: CpuGroup | None = None, **more: object) -> Iterator[int]:
    """The pid of a process in which so many threads spin."""
    enter = group.enter if group else None
    process = subprocess.Popen(
        [sys.executable, "-c", _SPIN, str(threads)],
        stdout=subprocess.PIPE,
        preexec_fn=enter,
        **more,  # type: ignore[call-overload]
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(_PATIENCE_S)
        process.stdout.close()

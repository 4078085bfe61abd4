"""A process that cleans up when we are killed: what stands beside a program on behalf of somebody
who watches it must not outlive the watching.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

_NOT_OURS_TO_HEAR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class WatcherGuard:
    """Waits beside this process. If that ends before `release`, it ends the processes whose command
    lines name `folder`, a temporary folder that only they know, and removes that.
    """

    def __init__(self, folder: Path) -> None:
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            try:
                os.close(self._writing)
                _stand_by(reading, folder)
            finally:
                os._exit(0)
        os.close(reading)

    def release(self) -> None:
        """Nothing is left to clean up."""
        os.write(self._writing, b"\0")
        os.close(self._writing)
        os.waitpid(self._pid, 0)


def _stand_by(reading: int, folder: Path) -> None:
    """In the process of the guard: from the fork to its end."""
    os.setsid()
    for number in _NOT_OURS_TO_HEAR:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    was_released = os.read(reading, 1)
    if was_released:
        return
    name = os.fsencode(folder)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if name in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)

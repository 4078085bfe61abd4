"""Which processes have which file open, by /proc/PID/fd: the other end of a pipe or socket."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

_WRITES = (os.O_WRONLY, os.O_RDWR)
_READS = (os.O_RDONLY, os.O_RDWR)


class Holder(NamedTuple):
    """A process that has a file open by one of its descriptors."""

    pid: int
    descriptor: int
    can_read: bool
    can_write: bool


class Descriptors:
    """The descriptors of all processes that this user may look at, read when they are first asked
    for.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root`: the folder that has /proc."""
        self._proc = root / "proc"

    def target(self, pid: int, descriptor: int) -> str:
        """What it is open to: a path, `pipe:[123]`, `socket:[123]`, `anon_inode:[eventpoll]`; ""
        where it may not be read.
        """
        try:
            return os.readlink(self._link(pid, descriptor))
        except OSError:
            return ""

    def _link(self, pid: int, descriptor: int) -> Path:
        folder = self._proc / str(pid) / "fd"
        return folder / str(descriptor)

    def info(self, pid: int, descriptor: int) -> dict[str, list[str]]:
        """What /proc/PID/fdinfo says of it: by name the values, of which there may be several."""
        found: dict[str, list[str]] = {}
        try:
            text = (self._proc / str(pid) / "fdinfo" / str(descriptor)).read_text()
        except OSError:
            return found
        for line in text.splitlines():
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), []).append(value.strip())
        return found

    def holders(self, target: str) -> list[Holder]:
        """Who has the pipe or socket `target` open, in the order of their numbers."""
        return self._holders(self._by_target.get(target, ()))

    def inode(self, pid: int, descriptor: int) -> int:
        """Of the file that it is open to; 0 where it may not be looked at."""
        with contextlib.suppress(OSError):
            return os.stat(self._link(pid, descriptor)).st_ino
        return 0

    def is_fifo(self, pid: int, descriptor: int) -> bool:
        """Whether it is open to a pipe, one with a name or one without."""
        with contextlib.suppress(OSError):
            return stat.S_ISFIFO(os.stat(self._link(pid, descriptor)).st_mode)
        return False

    def holders_of_fifo(self, pid: int, descriptor: int) -> list[Holder]:
        """Who has the same FIFO open as this descriptor, by whatever name."""
        with contextlib.suppress(OSError):
            known = os.stat(self._link(pid, descriptor))
            return self._holders(self._by_fifo.get((known.st_dev, known.st_ino), ()))
        return []

    def _holders(self, descriptors: Iterable[tuple[int, int]]) -> list[Holder]:
        found = []
        for pid, descriptor in descriptors:
            flags = self.info(pid, descriptor).get("flags", ["0"])[0]
            mode = int(flags, 8) & os.O_ACCMODE
            found.append(Holder(pid, descriptor, mode in _READS, mode in _WRITES))
        return found

    @cached_property
    def _by_target(self) -> dict[str, list[tuple[int, int]]]:
        """By pipe or socket the processes and descriptors that
        have it open.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        for one, target in self._every.items():
            if target.startswith(("pipe:", "socket:")):
                found.setdefault(target, []).append(one)
        return found

    @cached_property
    def _by_fifo(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """By device and inode of a FIFO with a name the same."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for one, target in self._every.items():
            if not target.startswith("/"):
                continue
            with contextlib.suppress(OSError):
                known = os.stat(self._link(*one))
                if stat.S_ISFIFO(known.st_mode):
                    found.setdefault((known.st_dev, known.st_ino), []).append(one)
        return found

    @cached_property
    def _every(self) -> dict[tuple[int, int], str]:
        """What each descriptor is open to, by process and descriptor."""
        found: dict[tuple[int, int], str] = {}
        names = filter(str.isdecimal, os.listdir(self._proc))
        for pid in sorted(map(int, names)):
            for descriptor in self._of(pid):
                found[pid, descriptor] = self.target(pid, descriptor)
        return found

    def _of(self, pid: int) -> list[int]:
        """Those of one process."""
        try:
            return sorted(int(name) for name in os.listdir(self._proc / str(pid) / "fd"))
        except OSError:  # another user's, or it has ended
            return []

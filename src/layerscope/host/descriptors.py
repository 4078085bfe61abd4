"""Which processes have which file open, by /proc/PID/fd: the other end of a pipe or socket."""

from __future__ import annotations

import os
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
            return os.readlink(self._proc / str(pid) / "fd" / str(descriptor))
        except OSError:
            return ""

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
        found = []
        for pid, descriptor in self._by_target.get(target, ()):
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
        names = filter(str.isdecimal, os.listdir(self._proc))
        for pid in sorted(map(int, names)):
            for descriptor in self._of(pid):
                target = self.target(pid, descriptor)
                if target.startswith(("pipe:", "socket:")):
                    found.setdefault(target, []).append((pid, descriptor))
        return found

    def _of(self, pid: int) -> list[int]:
        """Those of one process."""
        try:
            return sorted(int(name) for name in os.listdir(self._proc / str(pid) / "fd"))
        except OSError:  # another user's, or it has ended
            return []

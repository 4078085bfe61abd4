"""Who keeps a process from locking a file, as /proc/locks says: locks of fcntl and flock."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from layerscope.host import files

_WAITS = "->"
_FLOCK = "FLOCK"
_FIELDS = 8


class FileLock(NamedTuple):
    """A line of /proc/locks. `number`: of the lock; those that wait for it have the same. `pid`: 0
    where it has none, such as a lock of an open file.
    """

    number: str
    waits: bool
    is_flock: bool
    pid: int
    inode: int


def holders(pid: int, is_flock: bool, inode: int, root: Path = Path("/")) -> list[int]:
    """The processes that have a lock which `pid` waits for, 0: one without a number; empty where it
    waits for none. `inode`: of the file that it wants, in case that it waits for several.
    """
    locks = [one for one in _every(root) if one.is_flock == is_flock]
    numbers = _waited_for(pid, inode, locks)
    found: list[int] = []
    for one in locks:
        if one.number in numbers and not one.waits:
            found.append(one.pid)
    return found


def _waited_for(pid: int, inode: int, locks: list[FileLock]) -> set[str]:
    """The numbers of the locks that it waits for."""
    of_file: set[str] = set()
    others: set[str] = set()
    for one in locks:
        if one.waits and one.pid == pid:
            into = of_file if one.inode == inode else others
            into.add(one.number)
    return of_file or others


def _every(root: Path) -> list[FileLock]:
    """All lines, in their order."""
    found: list[FileLock] = []
    text = files.text(root / "proc/locks")
    for line in text.splitlines():
        one = _of(line)
        if one:
            found.append(one)
    return found


def _of(line: str) -> FileLock | None:
    """Such as "1: -> POSIX ADVISORY WRITE 4711 08:01:1234 0 EOF"; the arrow is there where it
    waits.
    """
    number, *words = line.split()
    waits = words[:1] == [_WAITS]
    if waits:
        del words[0]
    if len(words) < _FIELDS - 1:
        return None
    pid = files.whole(words[3]) or 0
    inode = files.whole(words[4].rpartition(":")[2])
    return FileLock(number, waits, words[0] == _FLOCK, max(pid, 0), inode or 0)

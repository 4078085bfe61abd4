"""Who started a process, and who started that one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def lineage(pid: int) -> Iterator[int]:
    """The process, its parent, and so on up, without the first one of all."""
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            return


def descends(pid: int, ancestor: int) -> bool:
    """Whether the living process `pid` is `ancestor` or a descendant of it."""
    return ancestor > 1 and ancestor in lineage(pid)

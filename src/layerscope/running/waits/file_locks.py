"""Locks of files: fcntl (lockf) and flock."""

from __future__ import annotations

from pathlib import Path

from layerscope.host import file_locks, files
from layerscope.model.running import Wait, Waited
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

# Numbers of system calls of x86-64, and what fcntl is asked that waits: F_SETLKW, F_OFD_SETLKW.
_FCNTL, _FLOCK = 72, 73
_ASKED_TO_WAIT = (7, 38)
_PROC = Path("/proc")


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """By the descriptor of the file, and by what the kernel lists as in its way."""
    if not _is_asked(thread):
        return None
    descriptor = thread.arguments[0] & 0xFFFFFFFF
    target = seen.descriptors.target(thread.pid, descriptor)
    what = f"a lock of the file {target}" if target else "a lock of a file"
    on = _holders(thread, descriptor, seen)
    note = "" if on else "which process holds it is not known"
    return Wait("file", what, on, note)


def _holders(thread: ToldThread, descriptor: int, seen: Observed) -> tuple[Waited, ...]:
    """Those that have a number."""
    is_flock = thread.call == _FLOCK
    inode = seen.descriptors.inode(thread.pid, descriptor)
    pids = file_locks.holders(thread.pid, is_flock, inode)
    others = dict.fromkeys(pids)
    return tuple(_holder(pid) for pid in others if pid)


def _is_asked(thread: ToldThread) -> bool:
    """Whether it waits for a lock of a file."""
    call = thread.call
    if call != _FCNTL:
        return call == _FLOCK
    asked = thread.arguments[1]
    return asked in _ASKED_TO_WAIT


def _holder(pid: int) -> Waited:
    """The process that took the lock."""
    folder = _PROC / str(pid)
    name = files.text(folder / "comm")
    how = "holds it" if name else "took it and has ended"
    return Waited(pid, 0, name, how)

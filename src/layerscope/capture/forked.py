"""Forks a process of ours off the session: what it needs is imported there already, so it starts in
a tenth of the time that a new Python takes.

Only where the session has no other thread, as one that holds a lock would hold it forever.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NoReturn

# In /proc/PID/stat, behind the name: where the command line begins and ends (proc(5): 48, 49).
_ARG_START, _ARG_END = 45, 46
_TASKS = Path("/proc/self/task")
_DESCRIPTORS = Path("/proc/self/fd")
_FIRST_OWN = 3  # behind the standard streams


def may_fork() -> bool:
    """Whether this process has one thread."""
    try:
        return len(os.listdir(_TASKS)) == 1
    except OSError:
        return False


def fork(
    words: Sequence[str], work: Callable[[], None], keep: Sequence[int], log: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """A process with the command line `words`, in a group of its own, that does `work` and ends.

    Of our descriptors it has those in `keep`, its standard output is a pipe, and it complains in
    `log`. OSError where the system has no room for it.
    """

    def be_it() -> NoReturn:
        _be(words, work, keep)

    # The pipe by which subprocess hears of an exec closes with all else: nobody waits for one.
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        process_group=0,
        restore_signals=False,
        preexec_fn=be_it,
    )


def _be(words: Sequence[str], work: Callable[[], None], keep: Sequence[int]) -> NoReturn:
    status = 1
    try:
        # What the session has made is not ours to end: its files and folders are in use.
        gc.freeze()
        gc.enable()
        _close_all_but(keep)
        _rename(words)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _close_all_but(keep: Sequence[int]) -> None:
    """Close descriptors, but for the standard streams."""
    for name in os.listdir(_DESCRIPTORS):
        number = int(name)
        if number < _FIRST_OWN or number in keep:
            continue
        with contextlib.suppress(OSError):  # it was open for the list of them
            os.close(number)


def _rename(words: Sequence[str]) -> None:
    """Let lists of processes show what this one is, as far as the old command line has room."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/stat").read_bytes()
        fields = status.rpartition(b")")[2].split()
        first = int(fields[_ARG_START])
        room = int(fields[_ARG_END]) - first
        if not first or room <= 0:
            return
        line = b"\0".join(map(os.fsencode, words))
        shown = line[: room - 1].ljust(room, b"\0")
        ctypes.memmove(first, shown, room)

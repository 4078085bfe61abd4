"""The processes below one of ours: who they are, what memory they hold, and how they are ended.

A process that gets the orphans among its descendants (`become_reaper`) keeps all that it starts
below it, daemons too: nothing can leave the tree, and nothing that is not in it is ever touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Between SIGTERM and SIGKILL, and between two looks at who is left.
GRACE_S = 2.0
_LOOK_S = 0.02
# A process cannot run any more when SIGKILL has been sent; what takes longer hangs in the kernel.
_KILLED_S = 5.0


def become_reaper() -> bool:
    """Get the orphans among our descendants, not init; whether the kernel does that."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


def children(pid: int, of_all_threads: bool = True) -> list[int]:
    """The living and unreaped children of a process; those that its first thread started, or all
    threads.
    """
    found: list[int] = []
    if not _kernel_tells():
        return [child for child, parent in _parents() if parent == pid]
    try:
        threads = os.listdir(f"/proc/{pid}/task") if of_all_threads else [str(pid)]
    except OSError:
        return found
    for thread in threads:
        with contextlib.suppress(OSError, ValueError):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


@functools.cache
def _kernel_tells() -> bool:
    """Whether it was built with CONFIG_PROC_CHILDREN."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _parents() -> Iterator[tuple[int, int]]:
    """Each process of the machine with its parent."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            # proc(5): the name in parentheses may hold anything; then come the state and the
            # parent.
            yield (
                int(name),
                int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1]),
            )


def below(roots: Iterable[int], of_all_threads: bool = True) -> list[int]:
    """`roots` and all their descendants, parents first."""
    found = list(dict.fromkeys(roots))
    known = set(found)
    for pid in found:  # grows meanwhile
        for child in children(pid, of_all_threads):
            if child not in known:
                known.add(child)
                found.append(child)
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Resident memory of these processes added up; pages that they share count for each."""
    pages = 0
    for pid in pids:
        path = Path(f"/proc/{pid}/statm")
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_bytes().split()
            pages += int(fields[1])
    return pages * _PAGE_BYTES


def is_running(pid: int) -> bool:
    """Whether the process is there and has not ended: a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (
            b"Z",
            b"X",
        )
    except (OSError, IndexError):
        return False


def mapped_libraries(pid: int) -> tuple[str, ...]:
    """Paths of what the process has mapped as code, sorted; none where that may not be read."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ()
    parts = (line.split(None, 5) for line in lines)
    return tuple(
        sorted(
            {
                words[5]
                for words in parts
                if len(words) == 6 and "x" in words[1] and words[5][0] == "/"
            }
        )
    )


def end(roots: Callable[[], Iterable[int]], grace_s: float = GRACE_S) -> list[int]:
    """End these processes and all below them: SIGTERM, after `grace_s` SIGKILL. Those that are
    left, mostly none.

    `roots` is asked again and again: who is told to end may start another one before it does, and
    leave children. They must be descendants of ours that nobody else reaps: then their ids cannot
    be somebody else's meanwhile.
    """
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILLED_S)):
        give_up = time.monotonic() + patience_s
        told: set[int] = set()
        while left := [pid for pid in below(roots()) if is_running(pid)]:
            for pid in left:
                if pid not in told:
                    told.add(pid)
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
            if time.monotonic() >= give_up:
                break
            time.sleep(_LOOK_S)
        if not left:
            return []
    return left


def marked(variable: str, value: str) -> list[int]:
    """Processes whose environment has `variable` with this value, and may be read; not
    ourselves.
    """
    wanted = f"{variable}={value}".encode()
    ourselves = os.getpid()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        if pid == ourselves:
            continue
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes()
            if wanted in environment.split(b"\0"):
                found.append(pid)
    return found

"""FIFOs with a name that a thread opens: it waits there until somebody opens the other end."""

from __future__ import annotations

import contextlib
import os
import stat

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

# Numbers of system calls of x86-64, and which of their arguments is the path; flags come next.
_OPENS = {2: 0, 257: 1}
_HERE = -100  # AT_FDCWD: from the working directory
_PATH_BYTES, _PAGE_BYTES = 4096, 4096


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """By the path that its system call names."""
    place = _OPENS.get(-1 if thread.call is None else thread.call)
    if place is None or len(thread.arguments) < place + 2:
        return None
    path = _text(thread.pid, thread.arguments[place])
    if not path:
        return None
    folder = _folder(thread, place, seen)
    whole = os.path.normpath(os.path.join(folder, path))
    if not _is_fifo(thread.pid, whole):
        return Wait("file", f"the file {whole} to be opened")
    mode = thread.arguments[place + 1] & os.O_ACCMODE
    other = "reading" if mode == os.O_WRONLY else "writing"
    return Wait(
        "pipe", f"the FIFO {whole} to be opened for {other}", (), "no process has it open so"
    )


def _folder(thread: ToldThread, place: int, seen: Observed) -> str:
    """Where a path that does not begin at the root begins."""
    number = thread.arguments[0] & 0xFFFFFFFF
    if place == 1 and number != _HERE & 0xFFFFFFFF:
        return seen.descriptors.target(thread.pid, number)
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{thread.pid}/cwd")
    return ""


def _is_fifo(pid: int, path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(os.stat(f"/proc/{pid}/root{path}").st_mode)
    return False


def _text(pid: int, address: int) -> str:
    """The text at an address of the process; "": it may not be read."""
    found = b""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while b"\0" not in found and len(found) < _PATH_BYTES:
            # No further than the page: the next one may not be there.
            count = _PAGE_BYTES - address % _PAGE_BYTES
            memory.seek(address)
            part = memory.read(count)
            if not part:
                return ""
            found += part
            address += len(part)
    return os.fsdecode(found.partition(b"\0")[0])

"""What those who make code as the program runs wrote about it for perf: /tmp/perf-PID.map, of
runtimes such as CPython with -X perf, or of oneDNN where the user asked it to. The files are copied
into the recording when the program has ended. What oneDNN does by itself is known without
(native/agent/jit_code.c).
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from layerscope.rawfile import raw_file

FOLDER = "jit-maps"
_MAPS = Path("/tmp")  # where perf looks for them
_MOST_BYTES = 64 << 20


def take(raw: Path, since_s: float) -> None:
    """Copy the maps of the processes whose raw files are in `raw` and that were written since then
    into it.
    """
    into = raw / FOLDER
    folders = {path.parent.name for path in raw_file.spools(raw)}
    for pid in {folder.rsplit("-", 2)[-2] for folder in folders}:
        take_one(pid, into, since_s)


def take_one(pid: int | str, folder: Path, since_s: float) -> Path | None:
    """Copy the map of a process into `folder` if it was written since then. Where it is then; None:
    there is none.
    """
    path = _MAPS / f"perf-{pid}.map"
    with contextlib.suppress(OSError):
        # Others may write in that place: no link is followed, and only a file of the user's own is
        # taken.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            about = os.fstat(file.fileno())
            if (
                not stat.S_ISREG(about.st_mode)
                or about.st_uid != os.getuid()
                or about.st_mtime < since_s
            ):
                return None
            text = file.read(_MOST_BYTES)
        folder.mkdir(exist_ok=True)
        (folder / path.name).write_bytes(text)
        return folder / path.name
    return None

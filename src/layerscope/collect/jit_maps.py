"""What oneDNN calls the code that it makes as the program runs: it writes /tmp/perf-PID.map where a variable asks for
that (oneDNN, "Profiling oneDNN Performance"). The files are taken into the recording when the program has ended.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from layerscope.collect import spool

FOLDER = "jit-maps"
_VARIABLES = ("ONEDNN_JIT_PROFILE", "DNNL_JIT_PROFILE")
_PERF_MAP = "2"  # bits of the variable: 1 VTune, 2 perf map, 4 jitdump
_MAPS = Path("/tmp")  # oneDNN knows no other place
# CPython writes into the same file, if the program asked for that (-X perf): then the file is the program's.
_OF_PYTHON = b" py::"
_MOST_BYTES = 64 << 20


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What to set so that oneDNN writes its map; nothing where the user has said what it shall write."""
    return {} if any(name in environment for name in _VARIABLES) else {_VARIABLES[0]: _PERF_MAP}


def take(raw: Path, since_s: float, removes: bool) -> None:
    """Copy the maps of the processes whose raw files are in `raw` and that were written since then into it.

    `removes`: they go where they were, unless they hold something of the program's.
    """
    for pid in {path.parent.name.rsplit("-", 2)[-2] for path in spool.spools(raw)}:
        with contextlib.suppress(OSError):
            _take_one(_MAPS / f"perf-{pid}.map", raw / FOLDER, since_s, removes)


def _take_one(path: Path, folder: Path, since_s: float, removes: bool) -> None:
    # Others may write in that place: no link is followed, and only a file of the user's own is taken.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_mtime < since_s:
            return
        text = file.read(_MOST_BYTES)
    folder.mkdir(exist_ok=True)
    (folder / path.name).write_bytes(text)
    if removes and _OF_PYTHON not in text:
        path.unlink()

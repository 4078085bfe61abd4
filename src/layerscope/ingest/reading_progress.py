"""Says how far the reading of a file of others is, if it takes long.

A thread looks where the file is read, whoever reads it: no reader has to tell.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from layerscope.model import progress

# Whoever waits less wonders about nothing.
_SILENT_S = 2.0
_EACH_S = 0.25
_DESCRIPTORS = Path("/proc/self/fd")


@contextlib.contextmanager
def told(path: Path, what: str = "") -> Iterator[None]:
    """Tell how far the reading of `path` is meanwhile; `what` is going on where that is not one
    file.
    """
    listener = progress.listener()
    if listener is None:
        yield
        return
    is_over = threading.Event()
    arguments = (path, what, listener, is_over)
    thread = threading.Thread(target=_tell, args=arguments, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _tell(path: Path, what: str, listener: progress.Listener, is_over: threading.Event) -> None:
    began_s = time.monotonic()
    if is_over.wait(_SILENT_S):
        return
    while True:
        seconds = time.monotonic() - began_s
        doing = what or _reading(path)
        listener.now(f"{doing}, {seconds:.0f} s")
        if is_over.wait(_EACH_S):
            break
    listener.done()


def _reading(path: Path) -> str:
    """How far it is, as long as it is open."""
    with contextlib.suppress(OSError):
        about = path.stat()
        for descriptor in os.listdir(_DESCRIPTORS):
            place = _place(descriptor, about)
            if place is not None:
                share = place / max(about.st_size, 1)
                return f"reading {path.name}: {min(share, 1):.0%}"
    return f"making tables of {path.name}"


def _place(descriptor: str, about: os.stat_result) -> int | None:
    """Where the file with this `about` is read by this descriptor; None: it is another file."""
    with contextlib.suppress(OSError, ValueError):
        number = int(descriptor)
        if os.path.samestat(os.fstat(number), about):
            return os.lseek(number, 0, os.SEEK_CUR)
    return None

"""Where files of a recording of perf are on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from layerscope.host import libraries
from layerscope.sources.perf_threads import Object


def here(object_: Object) -> str | None:
    """Where this very file is on this machine; None: it is not, or not as it was."""
    if object_.build_id:
        build = object_.build_id
        kept = Path.home() / ".debug" / ".build-id" / build[:2] / build[2:] / "elf"
        return next(
            (str(path) for path in (Path(object_.path), kept) if libraries.build_id(path) == build),
            None,
        )
    try:
        about = os.stat(object_.path)
    except (OSError, ValueError):
        return None
    device = os.major(about.st_dev) << 8 | os.minor(about.st_dev)
    is_same_file = (about.st_ino, device) == (object_.inode, object_.device)
    if object_.inode and is_same_file:
        return object_.path
    return None

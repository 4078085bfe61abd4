"""Where a command may write its file."""

from __future__ import annotations

import os
from pathlib import Path

from layerscope.model.errors import UsageError


def check_place(path: Path, force: bool) -> None:
    """UsageError where no file can be written at `path`, or where one is and `force` is not set."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"{path} lies in a folder that does not exist")
    # A link that leads nowhere would be replaced too.
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} exists and was left as it is. --force replaces it")

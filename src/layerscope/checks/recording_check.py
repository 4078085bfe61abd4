"""One line of `layerscope doctor`."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

OK, LIMITED, NO = "ok", "limited", "no"


class RecordingCheck(Struct, frozen=True):
    """One line. `state`: ok, limited or no."""

    subject: str
    state: str
    what: str
    remedy: str = ""


def text(path: Path) -> str:
    """`path` as text that can be printed."""
    return os.fsencode(path).decode("utf-8", "replace")

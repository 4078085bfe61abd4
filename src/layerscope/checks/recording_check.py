"""One line of `layerscope doctor`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

OK, LIMITED, NO = "ok", "limited", "no"


@dataclass(frozen=True, slots=True)
class RecordingCheck:
    """One line. `state`: ok, limited or no."""

    subject: str
    state: str
    what: str
    remedy: str = ""


def text(path: Path) -> str:
    """`path` as text that can be printed."""
    return os.fsencode(path).decode("utf-8", "replace")

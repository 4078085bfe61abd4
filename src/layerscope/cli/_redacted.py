"""A recording without what could identify its owner: for `pack --redact` and `report --redact`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerscope.recording.run import Run

# What a redacted recording is called: its own name may say too much.
NAMELESS = "recording"


@contextlib.contextmanager
def redacted(recording: Run, beside: Path) -> Iterator[Run]:
    """A redacted copy of `recording` that lasts as long as it is used, in the folder `beside`."""
    with tempfile.TemporaryDirectory(prefix="layerscope-redact-", dir=beside) as scratch:
        yield redacted_in(recording, Path(scratch))


def redacted_in(recording: Run, folder: Path) -> Run:
    """The redacted recording, whose tables are made in `folder`."""
    from layerscope.ingest.open import mark_complete
    from layerscope.recording.redacted import redact
    from layerscope.recording.run import SUFFIX, Run

    info, rows = redact(recording, folder)
    mark_complete(folder, folder / "raw", rows)
    return Run(folder / f"{NAMELESS}{SUFFIX}", info, folder)

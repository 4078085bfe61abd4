"""Opens a recording for a command."""

from __future__ import annotations

from pathlib import Path

from layerscope.store.run import Run


def open_run(path: Path) -> Run:
    """The recording at `path`, ready to be read."""
    return Run.open(path)

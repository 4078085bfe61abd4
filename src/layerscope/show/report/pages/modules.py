"""The network as a tree, with the time of each part."""

from __future__ import annotations

from layerscope.recording.reader import Reader

TITLE = "Modules"
ORDER = 50


def data(reader: Reader) -> None:
    """Nothing beside the shared blocks."""

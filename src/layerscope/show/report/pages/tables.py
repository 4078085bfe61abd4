"""Every table of `layerscope table`."""

from __future__ import annotations

from layerscope.recording.reader import Reader

TITLE = "Tables"
ORDER = 40


def data(reader: Reader) -> None:
    """Nothing beside the shared blocks."""

"""Every span on the track where it ran."""

from __future__ import annotations

from layerscope.recording.reader import Reader

TITLE = "Timeline"
ORDER = 20


def data(reader: Reader) -> None:
    """Nothing beside the shared blocks."""

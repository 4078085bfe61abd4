"""Formats of others, one file each. Those whose file has `recognises` and `read` are opened like a
recording.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from layerscope.sources.imported import Imported


class SourceFormat(Protocol):
    """What a file of this folder provides to be opened: MEANING says in a few words what it
    reads. A function `beside` of it, if there is one, gives the files that are read with a file.
    """

    MEANING: str

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins with `head`, unpacked, is of this format."""

    def read(self, path: Path) -> Imported:
        """The spans in the file `path`."""


def known() -> list[SourceFormat]:
    """The formats that can be opened."""
    modules = [
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    ]
    return [cast(SourceFormat, module) for module in modules if hasattr(module, "recognises")]

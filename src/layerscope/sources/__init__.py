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


# Most traces are of it: for one of them no other format has to be imported.
_OFTEN = "kineto"


def known() -> list[SourceFormat]:
    """The formats that can be opened."""
    found = (_module(name) for name in _names())
    return [module for module in found if module is not None]


def format_of(head: bytes) -> SourceFormat | None:
    """The format of a file that begins with `head`, unpacked; None: it is of none. No file is of
    two.
    """
    names = sorted(_names(), key=lambda name: name != _OFTEN)
    found = (_module(name) for name in names)
    return next((one for one in found if one is not None and one.recognises(head)), None)


def _names() -> list[str]:
    return [found.name for found in pkgutil.iter_modules(__path__)]


def _module(name: str) -> SourceFormat | None:
    """The file of this folder that is called so; None where it is no format."""
    module = importlib.import_module(f"{__name__}.{name}")
    return cast(SourceFormat, module) if hasattr(module, "recognises") else None

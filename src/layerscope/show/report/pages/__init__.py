"""The pages of the report: one file each, found by this folder.

A page is a module with a docstring that defines

    TITLE   what the menu calls it
    ORDER   its place in the menu: smaller ones first
    data    (reader) -> what it shows beside the blocks that all pages share, as JSON

The page itself is web/src/pages/NAME.tsx.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader


class PageModule(Protocol):
    """What a file of this folder provides."""

    TITLE: str
    ORDER: int

    def data(self, reader: Reader) -> Any:
        """What the page shows, as JSON; None: nothing beside the shared blocks."""


def pages() -> dict[str, PageModule]:
    """The pages by name, in the order of the menu."""
    names = [entry.name for entry in pkgutil.iter_modules(__path__)]
    found = {
        name: cast(PageModule, importlib.import_module(f"{__name__}.{name}")) for name in names
    }
    return dict(sorted(found.items(), key=lambda page: page[1].ORDER))

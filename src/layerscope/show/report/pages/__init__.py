"""The pages of the report: one file each, found by this folder.

A page is a module with a docstring that defines

    TITLE   what the menu calls it
    ORDER   its place in the menu: smaller ones first
    data    (reader) -> what it shows beside the blocks that all pages share, as JSON
    blocks  may be left out: (reader, spans) -> blocks of its own, each of which the page reads when
            it needs it; their names begin with the page's. `spans`: the key of the span of each row
            of the block `spans`

The page itself is web/src/pages/NAME.tsx.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import numpy as np

    from layerscope.recording.reader import Reader
    from layerscope.show.report.blocks import Block


class PageModule(Protocol):
    """What a file of this folder provides."""

    TITLE: str
    ORDER: int

    def data(self, reader: Reader) -> Any:
        """What the page shows, as JSON; None: nothing beside the shared blocks."""


class PageWithBlocks(Protocol):
    """What such a file may provide too."""

    def blocks(self, reader: Reader, spans: np.ndarray) -> list[Block]:
        """Blocks that only this page reads."""


def pages() -> dict[str, PageModule]:
    """The pages by name, in the order of the menu."""
    names = [entry.name for entry in pkgutil.iter_modules(__path__)]
    found = {
        name: cast(PageModule, importlib.import_module(f"{__name__}.{name}")) for name in names
    }
    return dict(sorted(found.items(), key=lambda page: page[1].ORDER))


def page_with_blocks(block: str) -> PageWithBlocks | None:
    """The page that this block belongs to alone; None: it is of all, or there is none."""
    page = pages().get(block.partition(" ")[0])
    return cast(PageWithBlocks, page) if hasattr(page, "blocks") else None


def page_blocks(reader: Reader, spans: np.ndarray) -> list[Block]:
    """The blocks that pages have of their own."""
    found: list[Block] = []
    for page in pages().values():
        if hasattr(page, "blocks"):
            found += cast(PageWithBlocks, page).blocks(reader, spans)
    return found

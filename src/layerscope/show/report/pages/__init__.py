"""The pages of the report: one file each, found by this folder.

A page is a module with a docstring that defines

    TITLE   what the menu calls it
    ORDER   its place in the menu: smaller ones first
    data    (reader) -> what it shows beside the blocks that all pages share, as JSON
    groups  may be left out: (reader, part, keys, other) -> groups of blocks of its own, each of
            which the page reads when it needs it; `part`: what of the recording is in the page;
            `keys` gives the key of the span of each row of the block `spans`; `other`: the earlier
            recording that it is compared with, or None

One that is about two recordings has in the place of `data`

    compared    (reader, other) -> the same, where there is an earlier recording to compare with

The page itself is web/src/pages/NAME.tsx.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import numpy as np

    from layerscope.recording.reader import Reader
    from layerscope.show.report.blocks import BlockGroup


class PageModule(Protocol):
    """What a file of this folder provides."""

    TITLE: str
    ORDER: int

    def data(self, reader: Reader) -> Any:
        """What the page shows, as JSON; None: nothing beside the shared blocks."""

    def groups(
        self,
        reader: Reader,
        part: Reader,
        keys: Callable[[], np.ndarray] | None,
        other: Reader | None,
    ) -> list[BlockGroup]:
        """The blocks that only this page reads."""

    def compared(self, reader: Reader, other: Reader) -> Any:
        """The same of a page about two recordings."""


def pages(is_compared: bool = False) -> dict[str, PageModule]:
    """The pages by name, in the order of the menu; `is_compared`: also those about two
    recordings.
    """
    shown = {}
    for entry in pkgutil.iter_modules(__path__):
        name = entry.name
        module = importlib.import_module(f"{__name__}.{name}")
        is_shown = is_compared or not hasattr(module, "compared")
        if is_shown:
            shown[name] = cast(PageModule, module)
    ordered = sorted(shown.items(), key=lambda page: page[1].ORDER)
    return dict(ordered)

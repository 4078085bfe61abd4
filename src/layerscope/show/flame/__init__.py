"""Flame graphs as files: one file for each format, found by this folder; the end of the file's name
chooses.

A format is a module with a docstring (its first line says what the file is) that defines

    SUFFIX   the end of the file names it writes
    OPEN     what to do with the file, as the end of the sentence "Next: "
    IS_CUT   whether it shows no more than can be seen
    write    (picture, stream) -> Written

Beside them: `viewer.js` and `viewer.css` are what SVG and HTML have inside, `page.js` and
`page.css` what HTML has beside the picture; all four are built from web/src/flame/. `markup` puts
them together, `palette` has the colours, `terminal_tree` prints without a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from layerscope.model.errors import UsageError

if TYPE_CHECKING:
    from layerscope.analyse.stacks.graphs import Graph


class Picture(Struct, frozen=True):
    """A flame graph with what is written around it: its title, the program, what was chosen, and
    what is missing. is_flipped: the outermost frames are at the bottom.
    """

    graph: Graph
    title: str
    command: str
    chosen: str
    notes: tuple[str, ...]
    is_flipped: bool = False


class Written(Struct, frozen=True):
    """What a file holds: frames, and frames that were too thin for it (those inside of them are not
    counted).
    """

    frames: int
    left_out: int = 0


class FlameFormat(Protocol):
    """What a file of this folder provides."""

    __doc__: str | None
    SUFFIX: str
    OPEN: str
    IS_CUT: bool

    def write(self, picture: Picture, stream: IO[bytes]) -> Written:
        """Write the picture into `stream`."""


def formats() -> dict[str, FlameFormat]:
    """The formats by the end of the file's name."""
    found: dict[str, FlameFormat] = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if hasattr(module, "SUFFIX"):
            found[module.SUFFIX] = cast(FlameFormat, module)
    return found


def format_of(path: Path) -> FlameFormat:
    """The format that the name of `path` asks for; UsageError that lists the formats when there is
    none.
    """
    known = formats()
    for suffix, module in known.items():
        if path.name.endswith(suffix) and path.name != suffix:
            return module
    raise UsageError(
        f"{path.name!r} names no format. The extension chooses it: {', '.join(sorted(known))}"
    )

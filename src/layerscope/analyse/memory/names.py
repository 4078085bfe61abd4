"""What blocks are grouped by, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.memory.blocks import Array, Blocks
from layerscope.analyse.tables.modules import OUTSIDE

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

NO_OPERATOR = "no operator"
NO_LINE = "not known"
# What stands for an empty name.
_NONE = {"operator": NO_OPERATOR, "line": NO_LINE}


def texts_of_names(blocks: Blocks, column: str, numbers: Array) -> list[str]:
    """The texts of these numbers of a column of names."""
    nothing = _NONE.get(column, "")
    texts = blocks.names[column][numbers]
    return [text or nothing for text in texts.tolist()]


def paths_of_modules(reader: Reader, modules: Array) -> list[str]:
    """The paths of these modules; -1 is none."""
    table = reader.arrays("modules", ["module", "path"])
    keys = table["module"].tolist()
    paths = table["path"].tolist()
    path_of = dict(zip(keys, paths, strict=True))
    return [path_of.get(one, OUTSIDE) for one in modules.tolist()]

"""Where the time went: frames inside of the frames that called them."""

from __future__ import annotations

from typing import Any

import numpy as np

from layerscope.analyse.result import COUNT, NS
from layerscope.analyse.stacks.frames import LAYERS, OTHER
from layerscope.analyse.stacks.graphs import KINDS
from layerscope.analyse.stacks.sample_reader import PAGEFAULTS
from layerscope.recording.reader import Reader
from layerscope.show.flame.markup import WHOLE
from layerscope.show.report.blocks import Block
from layerscope.show.report.flame import asked_block, graph_blocks, rule_blocks

TITLE = "Flame"
ORDER = 30


def data(reader: Reader) -> dict[str, Any]:
    """The kinds of flame graphs with their titles, and the layers of frames."""
    return {"kinds": {kind: _about(kind) for kind in KINDS}, "layers": LAYERS[:OTHER]}


def _about(kind: str) -> dict[str, str]:
    """Its title, and what its whole is and is counted in."""
    what, noun = WHOLE[kind]
    unit = COUNT if kind == PAGEFAULTS else NS
    return {"title": KINDS[kind], "unit": unit, "what": what, "noun": noun}


def blocks(reader: Reader, spans: np.ndarray) -> list[Block]:
    """The graphs of the whole recording, and the rules for those of a part of it."""
    return [*graph_blocks(reader), *rule_blocks(reader), asked_block(reader, spans)]

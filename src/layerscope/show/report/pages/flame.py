"""Where the time went: frames inside of the frames that called them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from layerscope.analyse.result import COUNT, NS
from layerscope.analyse.stacks.frames import LAYERS, OTHER
from layerscope.analyse.stacks.graphs import KINDS
from layerscope.analyse.stacks.sample_reader import PAGEFAULTS
from layerscope.recording.reader import Reader
from layerscope.show.flame.markup import WHOLE
from layerscope.show.report.blocks import BlockGroup
from layerscope.show.report.flame import (
    ASKED,
    RULES,
    STEPS,
    asked_block,
    compared_blocks,
    compared_name,
    graph_blocks,
    graph_names,
    rule_blocks,
    step_block,
)

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


def groups(
    reader: Reader,
    part: Reader,
    keys: Callable[[], np.ndarray] | None,
    other: Reader | None,
) -> list[BlockGroup]:
    """The graphs of the whole recording, and the rules for those of a part of it."""
    graphs = [BlockGroup(graph_names(kind), partial(graph_blocks, reader, kind)) for kind in KINDS]
    differential = [
        BlockGroup((compared_name(kind),), partial(compared_blocks, reader, other, kind))
        for kind in KINDS
        if other is not None
    ]
    return [
        *graphs,
        *differential,
        BlockGroup(RULES, lambda: rule_blocks(reader)),
        BlockGroup((STEPS,), lambda: [step_block(part)]),
        *([] if keys is None else [BlockGroup((ASKED,), lambda: [asked_block(reader, keys())])]),
    ]

"""Where the time went: frames inside of the frames that called them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from layerscope.analyse.stacks.frames import LAYERS, OTHER
from layerscope.analyse.stacks.graphs import KINDS, unit_of
from layerscope.analyse.stacks.memory import KINDS as MEMORY_KINDS
from layerscope.model.layers import GPU
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
    kinds = {kind: _about(kind) for kind in _kinds(reader)}
    return {
        "kinds": kinds,
        "layers": LAYERS[:OTHER],
    }


def _kinds(*readers: Reader) -> list[str]:
    """Those that the page offers: of memory only where all of these recordings have some. Work of
    GPUs is for the command.
    """
    found = []
    has_memory = all(reader.has("allocations") for reader in readers)
    for kind in KINDS:
        is_of_memory = kind in MEMORY_KINDS
        if kind != GPU and (has_memory or not is_of_memory):
            found.append(kind)
    return found


def _about(kind: str) -> dict[str, str]:
    """Its title, and what its whole is and is counted in."""
    what, noun = WHOLE[kind]
    return {"title": KINDS[kind], "unit": unit_of(kind), "what": what, "noun": noun}


def groups(
    reader: Reader,
    part: Reader,
    keys: Callable[[], np.ndarray] | None,
    other: Reader | None,
) -> list[BlockGroup]:
    """The graphs of the whole recording, and the rules for those of a part of it."""
    graphs = [
        BlockGroup(graph_names(kind), partial(graph_blocks, reader, kind))
        for kind in _kinds(reader)
    ]
    differential = []
    if other is not None:
        differential = [
            BlockGroup((compared_name(kind),), partial(compared_blocks, reader, other, kind))
            for kind in _kinds(reader, other)
        ]
    return [
        *graphs,
        *differential,
        BlockGroup(RULES, lambda: rule_blocks(reader)),
        BlockGroup((STEPS,), lambda: [step_block(part)]),
        *([] if keys is None else [BlockGroup((ASKED,), lambda: [asked_block(reader, keys())])]),
    ]

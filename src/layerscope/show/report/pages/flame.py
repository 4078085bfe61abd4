"""Where the time went: frames inside of the frames that called them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from layerscope.analyse.gpu.streams import has_streams
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
    """The kinds of flame graphs with their titles, the first one to show, and the layers of
    frames.
    """
    kinds = {kind: _about(kind) for kind in _kinds(reader)}
    is_of_gpus = GPU in kinds and not reader.has("samples")
    return {
        "kinds": kinds,
        "first": GPU if is_of_gpus else next(iter(kinds)),
        "layers": LAYERS[:OTHER],
    }


def _kinds(*readers: Reader) -> list[str]:
    """Those that the page offers: of memory and of GPUs only where all of these recordings have
    some.
    """
    missing: set[str] = set()
    if not all(reader.has("allocations") for reader in readers):
        missing.update(MEMORY_KINDS)
    if not all(map(has_streams, readers)):
        missing.add(GPU)
    return [kind for kind in KINDS if kind not in missing]


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

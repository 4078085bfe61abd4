"""Which module each block belongs to, where none was open when it was allocated.

What a backward pass allocates belongs to the module of the innermost backward function that was
open. A parameter was allocated when its module was made, and the averages of an optimizer when no
module runs, so nothing says whose they are but their size: they belong to the modules whose
gradients have it. Of modules with gradients of one size each gets as many, in the order in which
they run. Which one is whose may be wrong then, but the bytes of each module are right.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layerscope.analyse.memory.blocks import Array, Blocks, Int64s
from layerscope.analyse.memory.categories import (
    PARAMETER,
    STATE,
    Categories,
    gradients_of_one_pass,
)
from layerscope.analyse.memory.phases import PhaseSpans, SpansOfPhase
from layerscope.model.distinct import distinct

NO_MODULE = -1
# So many spans before a moment are asked whether they are open then.
_MOST_BACK = 32


def modules_of(blocks: Blocks, rows: Int64s, found: Categories, spans: PhaseSpans) -> Array:
    """The module of the blocks at `rows`, -1: none. `blocks` are all of a process and device."""
    module = modules_in_backward(blocks.at(rows), spans.backward)
    gradients = blocks.at(gradients_of_one_pass(found, blocks))
    of_gradients = modules_in_backward(gradients, spans.backward)
    # Of all blocks, not of those that are asked for alone: their number counts.
    of_all = np.full(len(blocks), NO_MODULE, np.int64)
    for category in (PARAMETER, STATE):
        held = np.flatnonzero(found.category == category)
        size = blocks.bytes[held]
        # An optimizer makes all averages of a parameter at once; copies of a network come whole.
        repeated = np.repeat if category == STATE else np.tile
        of_all[held] = _by_size(size, gradients.bytes, of_gradients, repeated)
    by_size = of_all[rows]
    chosen: Array = np.where(module < 0, by_size, module)
    return chosen


def modules_in_backward(blocks: Blocks, spans: SpansOfPhase) -> Array:
    """The modules of blocks, those of the backward phase included."""
    module: Array = np.array(blocks.module)
    is_open = (module < 0) & blocks.has_name("phase", "backward")
    for track in distinct(blocks.track[is_open]).tolist():
        rows = np.flatnonzero(is_open & (blocks.track == track))
        on_track = np.flatnonzero(spans.track == track)
        if not len(on_track):
            continue
        starts_ns = spans.start_ns[on_track]
        ends_ns = spans.end_ns[on_track]
        at_ns = blocks.at_ns[rows]
        place = np.searchsorted(starts_ns, at_ns, side="right") - 1
        for _ in range(_MOST_BACK):
            is_inside = (place >= 0) & (at_ns < ends_ns[place])
            module[rows[is_inside]] = spans.module[on_track[place[is_inside]]]
            goes_on = ~is_inside & (place > 0)
            rows, at_ns, place = rows[goes_on], at_ns[goes_on], place[goes_on] - 1
            if not len(rows):
                break
    return module


def _by_size(
    size: Int64s,
    gradient_size: Int64s,
    module: Array,
    repeated: Callable[[Array, int], Array],
) -> Array:
    """The modules of blocks of these sizes, by the gradients of one backward pass: -1 where the
    numbers of both do not fit and not all these gradients are of one module.
    """
    found = np.full(len(size), NO_MODULE, np.int64)
    for one in distinct(size).tolist():
        rows = np.flatnonzero(size == one)
        # Gradients come in the reverse of the order in which modules run.
        modules = module[gradient_size == one][::-1]
        if not len(modules):
            continue
        if (modules == modules[0]).all():
            found[rows] = modules[0]
        elif len(rows) % len(modules) == 0:
            found[rows] = repeated(modules, len(rows) // len(modules))
    return found

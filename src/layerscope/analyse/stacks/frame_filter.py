"""Which frames of a stack are shown. The weight of those that are not belongs to the nearest one
around them that is.

Unless layers are named, all are shown but two kinds. Of native code only what lies inside of the
innermost frame of another layer is: what a framework runs for an operator, not the interpreter's
own functions between two lines of Python. The two functions through which it calls every module are
left out too, and those of Python's import system, as they are in its tracebacks (`imports` makes
one frame of an import before).
"""

from __future__ import annotations

import numpy as np

from layerscope.analyse.stacks.frames import (
    KERNEL,
    LAYERS,
    NATIVE,
    OTHER,
    PYTHON,
    WAITS,
    FrameTable,
    StackFrame,
)
from layerscope.analyse.stacks.tree import (
    NONE,
    Bools,
    Ints,
    by_level,
    extended,
    nearest,
    summed,
    without,
)
from layerscope.model.errors import UsageError
from layerscope.model.frameworks import module_calls

ALL = "all"
_IMPORTS = "<frozen importlib."
NO_FRAME = StackFrame(OTHER, "no frame of these layers")


def layers_called(words: str | None) -> tuple[int, ...] | None:
    """The layers that `--layers` names, None for the default; UsageError that lists them."""
    if words is None:
        return None
    known = LAYERS[:OTHER]
    names = [word.strip() for word in words.split(",")]
    wrong = [name for name in names if name not in (*known, ALL)]
    if wrong:
        raise UsageError(
            f"there is no layer of frames {wrong[0]!r}. They are {', '.join(known)} and {ALL}"
        )
    return tuple(range(OTHER)) if ALL in names else tuple(known.index(name) for name in names)


def folded(
    up: Ints,
    frame: Ints,
    own: Ints,
    frames: FrameTable,
    layers: tuple[int, ...] | None,
    levels: list[Ints],
) -> tuple[Ints, Ints, Ints]:
    """(up, frame, own) with the frames that are not shown passed over: they have no weight and
    nothing above them.

    `levels`: the nodes by `tree.by_level`.
    """
    layer = frames.layers().astype(np.int8)[frame] if len(frame) else frame
    if layers is None:
        shown = ~is_machinery(frames)[frame] if len(frame) else np.ones(0, np.bool_)
    else:
        shown = np.isin(layer, (*layers, OTHER))
    if not shown.all():
        into = nearest(up, shown, levels)
        # One more node for what has none of them.
        into[into < 0] = len(up)
        own = summed(len(up) + 1, into, own)
        past_hidden = without(up, shown, levels)
        up = extended(np.where(shown, past_hidden, np.int32(NONE)), NONE)
        frame = extended(frame, frames.number(NO_FRAME))
        layer = extended(layer, OTHER)
        levels = by_level(up)
    # Native frames keep the one above them, and so does what they ask of the kernel or wait for.
    # Every other frame leads past native ones, so that these have the weight of stacks alone that
    # end in native code.
    if layers is None:
        leads_past = ~np.isin(layer, (NATIVE, KERNEL, WAITS))
        up = np.where(leads_past, without(up, layer != NATIVE, levels), up)
    return up, frame, own


def is_machinery(frames: FrameTable) -> Bools:
    """By frame: whether it is Python's import system, or what calls every module."""
    every = frames.all()
    # A module is a frame of its own; the functions that call every module say nothing.
    calls = module_calls()
    found = (
        frame.layer == PYTHON
        and (
            frame.file.startswith(_IMPORTS)
            or any(frame.name.endswith(name) and frame.file.endswith(file) for name, file in calls)
        )
        for frame in every
    )
    return np.fromiter(found, np.bool_, len(every))

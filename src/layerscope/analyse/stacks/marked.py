"""Frames that do no work, and those that stand for what was not seen: both are hatched in flame
graphs, which state their sums.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.stacks.frames import KERNEL, NATIVE, OTHER, FrameTable, StackFrame
from layerscope.analyse.stacks.tree import Bools, Ints, by_level, nearest
from layerscope.analyse.stacks.weights import UNKNOWN_STACK
from layerscope.model.gpu_waits import WAITS_FOR_GPU
from layerscope.model.sample_tables import CUT, LEFT_OUT

if TYPE_CHECKING:
    from layerscope.analyse.stacks.graphs import Graph

SPINNING, UNKNOWN = "spinning", "unknown"
# What the sum of each is called.
WORDS = {SPINNING: "spinning", UNKNOWN: "not known or cut"}
# Waiting on the CPU: barriers and locks of the runtimes of OpenMP and of MKL, and spin locks. Of a
# runtime without names all that it does itself is taken for waiting, which nearly all of it is.
_SPINS = re.compile(
    r"^(gomp_\w*(barrier|_wait|spin)|do_(spin|wait)$|__kmp_\w*(barrier|wait|yield)|kmp_flag|"
    r"mkl_serv_\w*(yield|barrier|wait)|_*sched_yield$|_*pthread_spin_lock|"
    r"\[lib(gomp|i?omp5?)[-.\]])"
)
_WAITS_FOR_GPU = re.compile(WAITS_FOR_GPU)
_COPIES = re.compile(r"mem(cpy|move)")


def mark_of(frame: StackFrame) -> str | None:
    """SPINNING, UNKNOWN, or None for all that is neither."""
    if frame == UNKNOWN_STACK or frame.name in (CUT, LEFT_OUT):
        return UNKNOWN
    if frame.layer != NATIVE:
        return None
    if _SPINS.search(frame.name) or _WAITS_FOR_GPU.search(frame.name):
        return SPINNING
    return None


def left_out_shown(frame: Ints, frames: FrameTable) -> Ints:
    """The frame of each node: the one in place of those that were left out between others is shown
    whatever layers are, since one of these did not call the other.
    """
    shown = frames.number(StackFrame(OTHER, LEFT_OUT))
    is_left_out = np.array([one.name == LEFT_OUT for one in frames.all()], np.bool_)
    return np.where(is_left_out[frame], shown, frame).astype(frame.dtype)


def marked_weights(graph: Graph) -> dict[str, int]:
    """The weight of each mark that a flame graph has: of what is cut with all in it, of spinning
    what no other function has, but the kernel's part of it.
    """
    tree, frames = graph.upright, graph.frames
    if not len(tree):
        return {}
    levels = by_level(tree.parent)
    own = tree.own[:, 0]
    is_cut = np.array([mark_of(frame) == UNKNOWN for frame in frames])[tree.frame]
    of_spinning = spinning(frames, tree.parent, tree.frame, levels)
    found = {
        SPINNING: int(own[of_spinning].sum()),
        UNKNOWN: int(own[nearest(tree.parent, is_cut, levels) >= 0].sum()),
    }
    return {mark: weight for mark, weight in found.items() if weight}


def spinning(frames: list[StackFrame], up: Ints, frame: Ints, levels: list[Ints]) -> Bools:
    """Of each stack, with callers `up`, whether it ends in a function that spins, or in what that
    does in the kernel, or waits for a GPU.
    """
    spins = np.array([mark_of(one) == SPINNING for one in frames])[frame]
    in_kernel = np.array([one.layer == KERNEL for one in frames])[frame]
    outside = nearest(up, ~in_kernel, levels)
    is_there: Bools = (outside >= 0) & np.append(spins, False)[outside]
    return is_there | waiting_for_gpu(frames, up, frame, levels)


def waiting_for_gpu(frames: list[StackFrame], up: Ints, frame: Ints, levels: list[Ints]) -> Bools:
    """Of each stack, with callers `up`, whether it is in a function that waits for a GPU."""
    waits = _of_native(frames, _WAITS_FOR_GPU)
    copies = _of_native(frames, _COPIES)
    around = nearest(up, waits[frame], levels)
    is_there: Bools = (around >= 0) & ~copies[frame]
    return is_there


def _of_native(frames: list[StackFrame], pattern: re.Pattern[str]) -> Bools:
    """Of each frame whether it is native code with such a name."""
    found = []
    for frame in frames:
        has_name = pattern.search(frame.name) is not None
        found.append(has_name and frame.layer == NATIVE)
    return np.array(found, np.bool_)

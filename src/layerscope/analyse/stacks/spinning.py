"""How much CPU time threads spent spinning: waiting on their CPU for others, or for a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from layerscope.analyse.columns import has_name
from layerscope.analyse.stacks.marked import spinning, waiting_for_gpu
from layerscope.analyse.stacks.sample_reader import stacks_once
from layerscope.analyse.stacks.tree import by_level

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader


class Spinning(NamedTuple):
    """Parts of all sampled CPU time: in functions that spin, and in those of them that wait for a
    GPU.
    """

    all: float
    for_gpu: float


def spinning_of(reader: Reader) -> Spinning | None:
    """The parts of the CPU time of a recording; None where nothing was sampled."""
    if not reader.has("samples"):
        return None
    stacks, frames = stacks_once(reader)
    columns = reader.arrays("samples", ["stack", "kind", "weight_ns"])
    is_cpu = has_name(columns, "kind", "cpu")
    weight_ns = columns["weight_ns"][is_cpu]
    whole_ns = int(weight_ns.sum())
    if not whole_ns or not len(stacks.up):
        return None
    place = stacks.place(columns["stack"][is_cpu].astype(np.int64))
    levels = by_level(stacks.up)
    shares = []
    for find in (spinning, waiting_for_gpu):
        of_stack = find(frames.all(), stacks.up, stacks.frame, levels)
        is_there = np.append(of_stack, False)[place]
        shares.append(float(weight_ns[is_there].sum()) / whole_ns)
    return Spinning(*shares)

"""How much CPU time threads spent spinning: waiting for others on their CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.columns import has_name
from layerscope.analyse.stacks.frames import FrameTable
from layerscope.analyse.stacks.marked import spinning
from layerscope.analyse.stacks.sample_reader import read_stacks
from layerscope.analyse.stacks.tree import by_level

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader


def spinning_share(reader: Reader) -> float | None:
    """The part of all sampled CPU time in functions that spin; None where nothing was sampled."""
    if not reader.has("samples"):
        return None
    frames = FrameTable()
    stacks = read_stacks(reader, frames)
    columns = reader.arrays("samples", ["stack", "kind", "weight_ns"])
    is_cpu = has_name(columns, "kind", "cpu")
    weight_ns = columns["weight_ns"][is_cpu]
    whole_ns = int(weight_ns.sum())
    if not whole_ns or not len(stacks.up):
        return None
    of_spinning = spinning(frames.all(), stacks.up, stacks.frame, by_level(stacks.up))
    place = stacks.place(columns["stack"][is_cpu].astype(np.int64))
    is_there = np.append(of_spinning, False)[place]
    return float(weight_ns[is_there].sum()) / whole_ns

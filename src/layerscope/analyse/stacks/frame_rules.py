"""What becomes of each frame of a recording's stacks in a flame graph, by its number: what the page
of a report needs to build the same trees as `graphs` of the samples that somebody chooses there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.stacks.frame_filter import NO_FRAME, is_machinery
from layerscope.analyse.stacks.frames import FrameTable, StackFrame, told_apart
from layerscope.analyse.stacks.imports import IMPORT, are_bodies, imports_of, of_system
from layerscope.analyse.stacks.innermost import functions, of_program
from layerscope.analyse.stacks.marked import left_out_shown
from layerscope.analyse.stacks.openmp_workers import WORKERS, begins_team, begins_thread
from layerscope.analyse.stacks.sample_reader import frame_numbers
from layerscope.analyse.stacks.tree import Ints
from layerscope.analyse.stacks.weights import UNKNOWN_STACK, wait_frame

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# What a frame is, as bits of `FrameRules.flags`: not shown by default, of the import system, the
# body of a module, in a file of the program, where a team of OpenMP begins, where any thread does.
FLAGS = MACHINERY, SYSTEM, BODY, MINE, TEAM, THREAD = tuple(1 << bit for bit in range(6))


class FrameRules(Struct, frozen=True):
    """Of every frame by its number what it is.

    key, number: of the rows of the table `frames`. function: the frame that is drawn for it. flags:
    a sum of `FLAGS`. imported: of the body of a library the frame of its import, else -1. waits: by
    state of samples, by its name, the frame of a wait, and of one of an idle thread.
    """

    frames: list[StackFrame]
    key: Ints
    number: Ints
    function: Ints
    layer: Ints
    flags: Ints
    imported: Ints
    waits: dict[str, tuple[int, int]]
    workers: int
    importing: int
    unknown: int
    no_frame: int


def frame_rules(reader: Reader) -> FrameRules:
    """The rules of a recording. Frames are numbered in the order in which `graphs` meets them."""
    frames = FrameTable()
    rows = reader.arrays("frames", ["frame", "layer", "name", "file", "line", "object"])
    number = frame_numbers(rows, frames)
    states = [str(name) for name in reader.arrays("samples", ["state"])["state.names"]]
    waits = {
        state: (frames.number(wait_frame(state, False)), frames.number(wait_frame(state, True)))
        for state in states
    }
    unknown = frames.number(UNKNOWN_STACK)
    function = left_out_shown(functions(frames), frames)
    workers, importing = frames.number(WORKERS), frames.number(IMPORT)
    is_of_library = are_bodies(frames) & ~of_program(frames)
    imported = imports_of(frames, np.flatnonzero(is_of_library))
    no_frame = frames.number(NO_FRAME)
    every = np.arange(len(frames))
    every[: len(function)] = function
    with_none = np.full(len(frames), -1)
    with_none[: len(imported)] = imported
    order = np.argsort(rows["frame"], kind="stable")
    return FrameRules(
        told_apart(frames.all()),
        rows["frame"][order],
        number[order],
        every,
        frames.layers(),
        _flags(frames),
        with_none,
        waits,
        workers,
        importing,
        unknown,
        no_frame,
    )


def _flags(frames: FrameTable) -> Ints:
    found = np.zeros(len(frames), np.int64)
    finders = (is_machinery, of_system, are_bodies, of_program, begins_team, begins_thread)
    for flag, find in zip(FLAGS, finders, strict=True):
        found += flag * np.asarray(find(frames), np.int64)
    return found

"""Threads that OpenMP began are one frame of a flame graph: what they work for stands in it, not
beside the program's own code.
"""

from __future__ import annotations

import re

import numpy as np

from layerscope.analyse.stacks.frames import NATIVE, OTHER, FrameTable, StackFrame
from layerscope.analyse.stacks.tree import Bools, Ints

WORKERS = StackFrame(OTHER, "OpenMP workers")
# Where the threads of a team begin: the runtimes of GCC, and of LLVM and Intel; without names the
# library stands for its functions.
_TEAM = re.compile(r"^(gomp_thread_start|__kmp_launch_(thread|worker)|\[lib(gomp|i?omp5?)[-.\]])")
# Where every thread begins.
_THREAD = re.compile(r"^(start_thread|__?clone3?|thread_start)$")


def as_workers(up: Ints, frame: Ints, frames: FrameTable) -> Ints:
    """The frame of each node of stacks, whose callers are `up`: where OpenMP begins a thread it is
    WORKERS.
    """
    is_team = begins_team(frames)
    is_thread = begins_thread(frames)
    if not is_team.any():
        return frame
    number = frames.number(WORKERS)
    is_called = up >= 0
    caller = np.where(is_called, up, 0)
    is_begun = is_thread[frame[caller]]
    is_worker = is_called & is_team[frame] & is_begun
    found: Ints = np.where(is_worker, number, frame).astype(frame.dtype)
    return found


def begins_team(frames: FrameTable) -> Bools:
    """By frame: whether the threads of a team of OpenMP begin there."""
    return _named(frames, _TEAM)


def begins_thread(frames: FrameTable) -> Bools:
    """By frame: whether every thread begins there."""
    return _named(frames, _THREAD)


def _named(frames: FrameTable, pattern: re.Pattern[str]) -> Bools:
    """By frame: whether it is a native function that is called so."""
    is_native = frames.layers() == NATIVE
    names = [one.name for one in frames.all()]
    is_called_so = np.array([pattern.search(name) is not None for name in names], np.bool_)
    found: Bools = is_native & is_called_so
    return found

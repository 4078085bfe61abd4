"""Imports of libraries are one frame each: `import numpy`, with all the time that it took.

What an import runs is the bodies of modules within the import system's own functions, hundreds of
frames deep, and says little about the program. Modules of the program itself stay as they are: what
they do when they are imported may be all that the program does.
"""

from __future__ import annotations

import re

import numpy as np

from layerscope.analyse.stacks.frames import PYTHON, WAITS, FrameTable, StackFrame
from layerscope.analyse.stacks.innermost import of_program
from layerscope.analyse.stacks.tree import NONE, Bools, Ints, summed
from layerscope.model.distinct import distinct

NOTE = "Each import of a library is one frame; --imports shows what it ran."
# What finds, reads and compiles modules.
IMPORT = StackFrame(PYTHON, "import")
_BODY = "<module>"
_SYSTEM = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
# What comes before the name of a module in the path of its file.
_ROOT = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib/python3(?:\.\d+)?/")
_FROZEN = re.compile(r"^<frozen (.*)>$")
# `import numpy.core`, but not each of the modules in it.
_PARTS = 2


def module_of(file: str) -> str:
    """What is imported where the body of the module in `file` runs first."""
    if frozen := _FROZEN.match(file):
        parts = frozen[1].split(".")
    else:
        path = _ROOT.sub("", file)
        names = path.removesuffix(".py").split("/")
        parts = names if path != file else names[-1:]
        if names[-1] == "__init__":
            parts = names[:-1] if path != file else names[-2:-1]
    return ".".join(parts[:_PARTS])


def with_imports_as_one(
    up: Ints, frame: Ints, own: Ints, frames: FrameTable, levels: list[Ints]
) -> tuple[Ints, Ints, Ints, bool]:
    """(up, frame, own) of stacks with each import of a library as one frame, and whether there was
    one. Waits stay, below the import.
    """
    is_system = of_system(frames)[frame]
    if not is_system.any():
        return up, frame, own, False
    is_body = are_bodies(frames)[frame]
    is_mine = of_program(frames)[frame]
    import_of = imports_of(frames, frame[is_body & ~is_mine])
    begin, into = _imported(up, is_system, is_body, is_mine, levels)
    node = np.arange(len(up), dtype=up.dtype)
    is_inside = into >= 0
    is_wait = (frames.layers() == WAITS)[frame]
    # Where the body of a library runs, or nothing but the import system.
    stands = is_inside & (into == node)
    is_first_body = is_body & (begin >= 0) & (stands | ~is_inside)
    up = np.where(is_first_body, up[begin], up)
    up = np.where(is_inside & is_wait, into, up)
    imported = np.where(is_body, import_of[frame], frames.number(IMPORT))
    frame = np.where(stands, imported, frame).astype(frame.dtype)
    target = np.where(is_inside & ~is_wait, into, node)
    own = summed(len(up), target, own)
    return up, frame, own, True


def _imported(
    up: Ints, is_system: Bools, is_body: Bools, is_mine: Bools, levels: list[Ints]
) -> tuple[Ints, Ints]:
    """Of each node where the import around it began, itself or above it; and into which node it is
    folded: the body of the library that runs, or as long as there is none where the import began.
    NONE outside of imports; the body of a module of the program ends one, and has its beginning.
    """
    begin, into = np.full((2, len(up)), NONE, up.dtype)
    has_body = np.zeros(len(up), np.bool_)
    for nodes in levels:
        above = up[nodes]
        around = np.where(above >= 0, into[above], NONE)
        is_known = has_body[above] & (around >= 0)
        begins = (around < 0) & is_system[nodes]
        is_first = (around >= 0) & ~is_known & is_body[nodes]
        is_library = is_first & ~is_mine[nodes]
        began = np.where(around >= 0, begin[above], NONE)
        begin[nodes] = np.where(begins, nodes, began)
        folded = np.where(begins | is_library, nodes, around)
        into[nodes] = np.where(is_first & is_mine[nodes], NONE, folded)
        has_body[nodes] = is_known | is_library
    return begin, into


def of_system(frames: FrameTable) -> Bools:
    """By frame: whether it is Python's import system."""
    return np.array([one.file in _SYSTEM for one in frames.all()], np.bool_)


def are_bodies(frames: FrameTable) -> Bools:
    """By frame: whether it is the body of a module."""
    return np.array([one.name == _BODY for one in frames.all()], np.bool_)


def imports_of(frames: FrameTable, bodies: Ints) -> Ints:
    """By frame, of the bodies of libraries their import."""
    every = frames.all()
    found = np.full(len(every), NONE, np.int64)
    for number in distinct(bodies).tolist():
        found[number] = frames.number(
            IMPORT._replace(name=f"import {module_of(every[number].file)}")
        )
    return found

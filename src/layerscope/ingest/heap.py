"""Gives memory back to the system that was used for a while: a large file is read and drawn by one
process.

What NumPy frees lies in the heap of the C library, full of holes that only small things fit into,
and Arrow keeps what it had. Without this a picture of a million stacks needs 60 MB more.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os

_M_MMAP_THRESHOLD = -3  # <malloc.h>
# Blocks as large are mapped on their own from now on, and go back at once. The C library begins
# with the same number, but raises it to the size of any such block that was freed.
_MAPPED_BYTES = 1 << 17
# Python looks for objects in cycles whenever so many more are there; by itself for each 700.
_MORE_OBJECTS = 100_000


def let_arrow_give_back() -> None:
    """Have Arrow use the heap of the C library. Before it is imported, and in a process that starts
    no program.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def give_back() -> None:
    """Give back what is free now, and from now on large blocks as soon as they are free."""
    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):  # another C library than that of GNU
        library.malloc_trim(0)
        library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def trim() -> None:
    """Give back what is free now. More will be needed soon, so the next blocks come as before."""
    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        library.malloc_trim(0)


def collect_rarely() -> None:
    """Look for cycles of Python objects rarely: a conversion makes none, and keeps most of its
    objects. Looking took 4 % of its time, and a tenth of what importing takes.
    """
    gc.set_threshold(_MORE_OBJECTS)

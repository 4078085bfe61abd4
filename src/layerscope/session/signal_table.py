"""Whether Python handles SIGURG of a process by the object that layerscope/autostart.py left there:
read from outside, in the process's memory.

CPython keeps its handlers in one table of static memory, on every platform of 64 bits and in every
version from 3.7 on a pair of words a signal: whether it came, and the object that is called. In
3.11 and before it is `Handlers` of signalmodule.c, later a part of `_PyRuntime`. It has no symbol
that could be relied on, so it is found by what it looks like, and believed only if the object that
it has for SIGURG holds our words.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# As layerscope/autostart.py has it.
DOOR = b"layerscope: SIGURG opens the door of this process"
_SIGNALS = 64
_WORD = 8
_PAIR = 2 * _WORD
# Words in front of the bytes of an object of Python, those of a build without the GIL included.
_OBJECT_BYTES = 160
# More than any Python's static memory; nothing larger is read.
_MOST_BYTES = 64 << 20


def is_ours(pid: int) -> bool:
    """Whether SIGURG calls our object, as Python knows it. OSError where we may not read the memory
    of the process, or it has ended.
    """
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for start, size in static_memory(pid):
            data = _read(memory.fileno(), start, size)
            for address in _handlers(data):
                if DOOR in _read(memory.fileno(), address, _OBJECT_BYTES):
                    return True
    return False


def static_memory(pid: int) -> Iterator[tuple[int, int]]:
    """Where the variables of the executable and of a library of Python are: starts and sizes."""
    program = os.readlink(f"/proc/{pid}/exe")
    end_before = 0
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        place, rights, _, _, _, *name = line.split(maxsplit=5)
        start, end = (int(word, 16) for word in place.split("-"))
        path = name[0] if name else ""
        is_python = path == program or "python" in path.rpartition("/")[2]
        # What is zero at first follows without a name.
        is_behind = not path and start == end_before
        if is_python or is_behind:
            end_before = end
            if rights.startswith("rw") and end - start <= _MOST_BYTES:
                yield start, end - start


def _handlers(data: bytes) -> list[int]:
    """The addresses of what may be the handler of SIGURG: every signal has one, and hardly any
    signal is waiting to be handled.
    """
    import numpy as np  # `attach` of other programs starts without it

    words = np.frombuffer(data[: len(data) // _WORD * _WORD], np.uint64)
    count = len(words) - 2 * _SIGNALS + 1
    if count <= 0:
        return []
    is_flag = (words & np.uint64(0xFFFFFFFF)) <= 1
    is_pointer = (words >= 0x1000) & (words % _WORD == 0)
    # A pair beginning at word i, and the same at all signals behind it.
    is_pair = is_flag[:-1] & is_pointer[1:]
    is_table = np.ones(count, bool)
    for number in range(_SIGNALS):
        is_table &= is_pair[2 * number : 2 * number + count]
    urgent = np.flatnonzero(is_table) + 2 * (signal.SIGURG - 1) + 1
    return [int(one) for one in np.unique(words[urgent])]


def _read(memory: int, address: int, size: int) -> bytes:
    """What can be read of it."""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""

"""The agent as seen from outside: where its library is, the door through which it enters a Python
program, and the clock reading that it shares with us.

The door is a folder that holds nothing but a `sitecustomize.py`; it goes in front of PYTHONPATH, the
one variable of the program's environment that changes.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from layerscope.collect import layout
from layerscope.collect.launchers import RANKS
from layerscope.model.events import Problem

_HERE = Path(__file__).parent
LIBRARY = _HERE.parent / "native" / "liblayerscope-agent.so"
PROBE = _HERE.parent / "native" / "layerscope-probe"
INSIDE = _HERE / "inside"


class Settings(TypedDict):
    """What the program must know to hand its memory over: the socket's abstract name, where our files are."""

    socket: str
    library: str
    inside: str
    package: str
    tsc: int


def check() -> Problem | None:
    """Why operators cannot be recorded with this installation; None when they can."""
    if not LIBRARY.exists() or not PROBE.exists():
        return Problem(
            "operators",
            "agent_not_built",
            "the native agent of layerscope was not compiled",
            "install a C compiler (for example gcc), then: python3 dev.py demo",
            "operators, ranges, optimizer steps and loader waits",
        )
    if _library() is None:
        return Problem(
            "operators",
            "agent_does_not_load",
            f"{LIBRARY.name} does not load here or is of another version",
            "compile it again on this machine: remove it, then python3 dev.py demo",
            "operators, ranges, optimizer steps and loader waits",
        )
    return None


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    return library if library.ls_layout_version() == layout.VERSION else None


def clock_reading() -> tuple[int, int, int, int]:
    """One moment on three clocks: (tsc, CLOCK_MONOTONIC ns, CLOCK_REALTIME ns, error ns); tsc 0: no agent."""
    library = _library()
    if library is None:
        return 0, time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.clock_gettime_ns(time.CLOCK_REALTIME), 0
    out = (ctypes.c_int64 * 4)()
    library.ls_clock_reading(out)
    return out[0], out[1], out[2], out[3]


def settings(socket_name: str, use_tsc: bool) -> Settings:
    """How to reach the recorder that listens to `socket_name`."""
    return {
        "socket": socket_name,
        "library": str(LIBRARY),
        "inside": str(INSIDE),
        "package": str(_HERE.parent),
        "tsc": int(use_tsc),
    }


def make_door(folder: Path, socket_name: str, use_tsc: bool, ranks: Sequence[int] = ()) -> Path:
    """Write the `sitecustomize.py` of one recording into `folder`; returns the folder.

    Processes that know by then that they are another rank than one of `ranks` are left alone; empty: none are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = (INSIDE / "door" / "sitecustomize.py").read_text(encoding="utf-8")
    marker = "SETTINGS = {}"
    if marker not in text:
        raise ValueError(f"the door template lost its line {marker!r}")
    told: dict[str, object] = dict(settings(socket_name, use_tsc))
    if ranks:
        told |= {"ranks": list(ranks), "rank_variables": [pair for _, *pair in RANKS]}
    filled = text.replace(marker, f"SETTINGS = {told!a}")
    (folder / "sitecustomize.py").write_text(filled, encoding="utf-8")
    return folder

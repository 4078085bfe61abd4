"""The agent as seen from outside: where its library is, the door through which it enters a Python
program, and the clock reading that it shares with us.

The door is a folder that holds nothing but a `sitecustomize.py`; it goes in front of PYTHONPATH.
What is not Python comes in by libraries that use ITT or NVTX: they load the collector that a
variable names (`without_python`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote

from layerscope.capture.launchers import RANKS
from layerscope.model.events import Problem
from layerscope.model.layers import PRIMITIVES, RANGES, STACKS
from layerscope.model.secrets import kept_names
from layerscope.rawfile import layout

_HERE = Path(__file__).parent
LIBRARY = _HERE.parent / "native" / "liblayerscope-agent.so"
PRELOAD = _HERE.parent / "native" / "liblayerscope-preload.so"
PROBE = _HERE.parent / "native" / "layerscope-probe"
DRAINING = _HERE.parent / "native" / "liblayerscope-draining.so"
# LD_VERSION of native/draining/draining.h.
_DRAINING_VERSION = 1
INSIDE = _HERE / "inside"
FRAMEWORKS, SERVERS = _HERE / "frameworks", _HERE / "servers"
# How the native part is compiled: in a clone, or where layerscope was installed.
_IS_CLONE = (_HERE.parents[2] / "dev.py").exists()
BUILD_AGAIN = (
    "python3 dev.py native"
    if _IS_CLONE
    else "install layerscope again (pip install --force-reinstall)"
)
WITHOUT_IT = (
    "operators, ranges, optimizer steps and loader waits outside of windows of the framework's "
    "own profiler"
)
# Where libraries that use ITT (oneDNN is one) and NVTX look for their collector, and where ours
# finds its settings.
ITT, NVTX, SETTINGS = "INTEL_LIBITTNOTIFY64", "NVTX_INJECTION64_PATH", "LAYERSCOPE_AGENT"
# Whom oneDNN and others tell what code they make while the program runs (jitprofiling.h of Intel's
# ITT API).
JIT = "INTEL_JIT_PROFILER64"
# Variable, layer, code of the problem, and what is lost when it names somebody else's collector.
_COLLECTORS = [
    (ITT, PRIMITIVES, "itt_taken", "oneDNN's primitives, and what is marked with ITT"),
    (NVTX, RANGES, "nvtx_taken", "what is marked with NVTX"),
]
_OF_JIT = (JIT, STACKS, "jit_taken", "names of code that is made while the program runs")


class Settings(TypedDict):
    """What the program must know to hand its memory over: the socket's abstract name, where our
    files are. `hooks`: by name of a framework the file that records it. `variables`: those that a
    recording may keep, by beginnings and by whole names.
    """

    socket: str
    library: str
    hooks: dict[str, str]
    package: str
    tsc: int
    variables: tuple[tuple[str, ...], tuple[str, ...]]


def check() -> Problem | None:
    """Why operators cannot be recorded with this installation; None when they can."""
    if not LIBRARY.exists() or not PROBE.exists() or not DRAINING.exists():
        return Problem(
            "operators",
            "agent_not_built",
            "the native agent of layerscope was not compiled",
            f"install a C compiler (for example gcc), then: {BUILD_AGAIN}",
            WITHOUT_IT,
        )
    broken = LIBRARY if _library() is None else DRAINING if draining() is None else None
    if broken is not None:
        return Problem(
            "operators",
            "agent_does_not_load",
            f"{broken.name} does not load here or is of another version",
            f"compile it again on this machine: remove it, then: {BUILD_AGAIN}",
            WITHOUT_IT,
        )
    return None


@functools.cache
def _library() -> ctypes.CDLL | None:
    return _loaded(LIBRARY, "ls_layout_version", layout.VERSION)


@functools.cache
def draining() -> ctypes.CDLL | None:
    """What the drainer does with rings, compiled; None: it does not load here."""
    return _loaded(DRAINING, "ld_version", _DRAINING_VERSION)


def _loaded(file: Path, version_of: str, version: int) -> ctypes.CDLL | None:
    """The library in `file` if its function `version_of` returns `version`."""
    try:
        library = ctypes.CDLL(str(file)) if _is_whole(file) else None
        if library is None or library[version_of]() != version:
            return None
    except (OSError, AttributeError):
        return None
    return library


def _is_whole(library: Path) -> bool:
    """Whether nothing of an ELF file is cut off: to load such a one may end a process by SIGBUS."""
    with library.open("rb") as file:
        head = file.read(64)
        size_bytes = os.fstat(file.fileno()).st_size
    if len(head) < 64:
        return False
    # The table of sections is the last thing in the file: e_shoff, e_shentsize, e_shnum.
    sections_at, entry_bytes, sections = struct.unpack("<40xQ10xHH2x", head)
    return bool(sections_at + entry_bytes * sections <= size_bytes)


def clock_reading() -> tuple[int, int, int, int]:
    """One moment on three clocks: (tsc, CLOCK_MONOTONIC ns, CLOCK_REALTIME ns, error ns); tsc 0: no
    agent.
    """
    library = _library()
    if library is None:
        return (
            0,
            time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            time.clock_gettime_ns(time.CLOCK_REALTIME),
            0,
        )
    out = (ctypes.c_int64 * 4)()
    library.ls_clock_reading(out)
    return out[0], out[1], out[2], out[3]


def settings(socket_name: str, use_tsc: bool) -> Settings:
    """How to reach the recorder that listens to `socket_name`."""
    return {
        "socket": socket_name,
        "library": str(LIBRARY),
        "hooks": hooks(),
        "package": str(_HERE.parent),
        "tsc": int(use_tsc),
        "variables": kept_names(),
    }


def hooks() -> dict[str, str]:
    """By name of a framework or a server the file that runs in the program that imports it."""
    folders = sorted((*FRAMEWORKS.glob("*/inside"), *SERVERS.glob("*/inside")))
    return {folder.parent.name: str(folder / "hook.py") for folder in folders}


def make_door(
    folder: Path,
    socket_name: str,
    use_tsc: bool,
    ranks: Sequence[int] = (),
    shapes: dict[str, str] | None = None,
    raw: Path | None = None,
    window: list[object] | None = None,
    layers: dict[str, object] | None = None,
) -> Path:
    """Write the `sitecustomize.py` of one recording into `folder`; returns the folder.

    Processes that know by then that they are another rank than one of `ranks` are left alone;
    empty: none are. `shapes`: what reads the shapes of inputs, as `Shapes.settings` gives
    it. `raw`: where windows of the stock profiler go that are left where the agent cannot record,
    and all there is where `socket_name` is empty. `window`: what is recorded, as
    the agent takes it (`ls_window_set`). `layers`: further settings, of layers that were
    asked for or left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = (INSIDE / "inject" / "sitecustomize.py").read_text(encoding="utf-8")
    marker = "SETTINGS = {}"
    if marker not in text:
        raise ValueError(f"the door template lost its line {marker!r}")
    told: dict[str, object] = dict(settings(socket_name, use_tsc))
    if ranks:
        told |= {"ranks": list(ranks), "rank_variables": [pair for _, *pair in RANKS]}
    if shapes is not None:
        told["shapes"] = shapes
    if window is not None:
        told["window"] = window
    if raw is not None:
        told["raw"] = str(raw)
    told |= layers or {}
    told["refusals"] = str(folder)
    filled = text.replace(marker, f"SETTINGS = {told!a}")
    (folder / "sitecustomize.py").write_text(filled, encoding="utf-8")
    return folder


def without_python(
    environment: Mapping[str, str],
    socket_name: str,
    use_tsc: bool,
    ranks: Sequence[int] = (),
    window: list[object] | None = None,
    door: Path | None = None,
    stacks: Mapping[str, int] | None = None,
    api: bool = True,
    memory: bool = False,
) -> tuple[dict[str, str], list[Problem]]:
    """The variables by which oneDNN, ITT and NVTX load the agent into any program, and what keeps
    them from it.

    A collector that `environment` has already stays. `ranks`, `window`, `door`: as `make_door` has
    them. `stacks`: samples are taken `hz` times in each second that a thread runs, and by timers of
    the program's own, not by events from outside, if `timers` is 1; `make_door` takes the same as
    one of `layers`. `api`: calls of a framework's C interface are recorded. `memory`:
    allocations are.
    """
    told = [
        f"socket={quote(socket_name)}",
        f"tsc={int(use_tsc)}",
        f"library={quote(os.fsencode(LIBRARY))}",
    ]
    if ranks:
        told.append("ranks=" + ",".join(map(str, ranks)))
    if window is not None:
        *numbers, mark = window
        told.append(
            "window=" + ":".join([*map(str, numbers), quote(os.fsencode(str(mark)), safe="")])
        )
    if stacks is not None:
        told.append(f"stacks={stacks['hz']}:{stacks['timers']}")
    if not api:
        told.append("api=0")
    if memory:
        told.append("memory=1")
    if door is not None:
        told.append(f"refusals={quote(os.fsencode(door))}")
    added, problems = {SETTINGS: ";".join(told)}, []
    collectors = [*_COLLECTORS, _OF_JIT] if stacks is not None else _COLLECTORS
    for variable, layer, code, lost in collectors:
        its = environment.get(variable)
        if its and Path(its).name != LIBRARY.name:  # ours: of a recording around this one
            what = (
                f"{variable} names another collector ({its}), which keeps what it would get "
                "without layerscope"
            )
            problems.append(Problem(layer, code, what, f"unset {variable}", lost))
        else:
            added[variable] = str(LIBRARY)
    return added, problems


def refusals(door: Path) -> list[Problem]:
    """What processes of the program noted at their `door` because they could hand nothing over; the
    notes go.
    """
    reasons = []
    for note in door.glob("refused-*"):
        with contextlib.suppress(OSError):
            reason = os.readlink(note)
            note.unlink()
            reasons.append(reason)
    counted = Counter(reasons)
    return [_refusal(reason, processes) for reason, processes in counted.items()]


def _refusal(why: str, processes: int) -> Problem:
    call, _, error = why.partition(" ")
    whom = "a process" if processes == 1 else f"{processes} processes"
    reason = os.strerror(int(error)) if error.isdigit() else error
    if call == "connect":
        what = (
            f"{whom} of the program could not reach layerscope ({reason}), as in another "
            "network namespace"
        )
        remedy = "run layerscope itself inside of that namespace or container"
    elif call == "files":
        what = (
            f"{whom} of the program could not load the files of layerscope in "
            f"{INSIDE.parent.parent}"
        )
        remedy = "make that folder readable there: for another user, in another root or container"
    else:
        what = f"{whom} of the program may not share memory with layerscope ({call}: {reason})"
        remedy = "allow that system call (seccomp), or raise the limit (ulimit) that forbids it"
    return Problem(
        "operators",
        "refused",
        what,
        remedy,
        "everything in it" if processes == 1 else "everything in them",
    )

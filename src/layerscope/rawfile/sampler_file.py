"""The raw file of the sampler as NumPy types: the numbers of `native/sampler/format.h`, which has
their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from layerscope.rawfile.raw_file import SAMPLER_FILE

# The file lies beside the folders of the processes. A sampler that took the place of another writes
# stacks.1, stacks.2, ...
_FILES = (SAMPLER_FILE, f"{SAMPLER_FILE}.[0-9]*")
NONE = 0xFFFFFFFF

(
    SETTINGS,
    OBJECTS,
    PROCESSES,
    THREADS,
    CODES,
    FRAMES,
    STACKS,
    SAMPLES,
    ACCOUNTS,
    QUALITY,
    POLL,
    PROBLEMS,
    END,
    MADES,
    NAMES,
    PROCESS_ACCOUNTS,
) = range(20, 36)

OBJECT = np.dtype(
    [
        ("object", "<u4"),
        ("path_bytes", "<u4"),
        ("device", "<u8"),
        ("inode", "<u8"),
        ("mtime_ns", "<u8"),
        ("build_id", "u1", (20,)),
        ("build_id_bytes", "<u4"),
    ]
)
PROCESS = np.dtype(
    [
        ("process", "<u4"),
        ("pid", "<i4"),
        ("ppid", "<i4"),
        ("python", "<u4"),
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
    ]
)
THREAD = np.dtype(
    [
        ("thread", "<u4"),
        ("process", "<u4"),
        ("tid", "<i4"),
        ("pad", "<u4"),
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("name", "S16"),
    ]
)
NAME = np.dtype([("thread", "<u4"), ("name_bytes", "<u4")])
CODE = np.dtype(
    [
        ("code", "<u4"),
        ("process", "<u4"),
        ("first_line", "<i4"),
        ("name_bytes", "<u4"),
        ("file_bytes", "<u4"),
        ("lines_bytes", "<u4"),
        ("python", "<u4"),
        ("known_as", "<u4"),
    ]
)
MADE_CODE = np.dtype(
    [
        ("made", "<u4"),
        ("process", "<u4"),
        ("address", "<u8"),
        ("code_bytes", "<u4"),
        ("name_bytes", "<u4"),
        ("pad", "<u8"),
    ]
)
NATIVE, PYTHON, JIT, KERNEL, CUT, MADE = range(6)
CUT_BETWEEN = 1  # `of` a frame CUT: it stands for frames between others, else for the outer ones
FRAME = np.dtype(
    [("frame", "<u4"), ("kind", "<u4"), ("of", "<u4"), ("flags", "<u4"), ("address", "<u8")]
)
STACK = np.dtype([("stack", "<u4"), ("parent", "<u4"), ("frame", "<u4"), ("depth", "<u4")])
CPU, OFFCPU, FAULT = range(3)
EXACT, PREEMPTED, NO_SPLICE, UNFINISHED, BEFORE = 1, 2, 4, 8, 16
NO_FILE, PIPE, SOCKET, REGULAR, TERMINAL, EVENT = range(6)
NO_SYSTEM_CALL, UNKNOWN_SYSTEM_CALL, STOPPED_BY_SIGNAL = -1, -2, -3
SAMPLE = np.dtype(
    [
        ("at_ns", "<u8"),
        ("thread", "<u4"),
        ("stack", "<u4"),
        ("weight_ns", "<u8"),
        ("kernel_ns", "<u8"),
        ("kind", "<u4"),
        ("flags", "<u4"),
        ("count", "<u4"),
        ("system_call", "<i4"),
        ("file", "<u4"),
        ("waker", "<u4"),
    ]
)
ACCOUNT = np.dtype(
    [
        ("at_ns", "<u8"),
        ("thread", "<u4"),
        ("migrations", "<u4"),
        ("run_ns", "<u8"),
        ("delay_ns", "<u8"),
        ("user_ns", "<u8"),
        ("system_ns", "<u8"),
        ("switches_voluntary", "<u8"),
        ("switches_forced", "<u8"),
        ("faults_minor", "<u8"),
        ("faults_major", "<u8"),
    ]
)
FORKED, ENDED = 1, 2
PROCESS_ACCOUNT = np.dtype(
    [
        ("at_ns", "<u8"),
        ("process", "<u4"),
        ("flags", "<u4"),
        ("exit", "<i4"),
        ("threads", "<u4"),
        ("rss_bytes", "<u8"),
        ("rss_peak_bytes", "<u8"),
        ("user_ns", "<u8"),
        ("system_ns", "<u8"),
        ("faults_minor", "<u8"),
        ("faults_major", "<u8"),
    ]
)
QUALITY_OF = np.dtype(
    [
        (name, "<u8")
        for name in (
            "samples",
            "to_root",
            "jit",
            "jit_to_root",
            "python",
            "spliced",
            "cut",
            "lost",
            "handler_ns",
            "signals",
            "waits",
            "waits_to_root",
            "our_ns",
            "missed_threads",
            "pad0",
            "pad1",
        )
    ]
)


def files(raw: Path) -> list[tuple[Path, str]]:
    """The files of samplers below `raw`, a raw folder or that of the recordings of ranks, each with
    its rank.
    """
    found = [(path, "") for pattern in _FILES for path in _in_order(raw.glob(pattern))]
    found += [
        (path, path.parent.parent.name)
        for pattern in _FILES
        for path in _in_order(raw.glob(f"*/raw/{pattern}"))
    ]
    return [
        (path, rank) for path, rank in found if "-" not in path.name
    ]  # segments are read with the first of them


def _in_order(paths: Iterable[Path]) -> list[Path]:
    """As they were written: stacks.9, then stacks.10."""
    return sorted(paths, key=lambda path: (path.parent, len(path.name), path.name))

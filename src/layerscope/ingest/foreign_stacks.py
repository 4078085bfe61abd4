"""Stacks of a file of another program as the tables `frames`, `stacks` and `samples`. Used by
`foreign`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from layerscope.ingest import waiting
from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES, WAITS
from layerscope.recording.writer import TableWriter, codes_to_names, write_columns
from layerscope.sources.imported import ImportedStacks

# Rows that are made ready for Parquet at a time.
_PART_ROWS = 1 << 17
# Nobody numbers the system call of a wait here, but functions of the kernel and of libc are called
# like it. The numbers are those of x86-64, which `analyse.waiting` takes
# (arch/x86/entry/syscalls/syscall_64.tbl).
_NUMBERS = {
    "read": 0,
    "write": 1,
    "poll": 7,
    "pread64": 17,
    "pwrite64": 18,
    "readv": 19,
    "writev": 20,
    "select": 23,
    "sched_yield": 24,
    "nanosleep": 35,
    "sendfile64": 40,
    "connect": 42,
    "accept": 43,
    "sendto": 44,
    "recvfrom": 45,
    "sendmsg": 46,
    "recvmsg": 47,
    "wait4": 61,
    "fsync": 74,
    "fdatasync": 75,
    "futex": 202,
    "clock_nanosleep": 230,
    "epoll_wait": 232,
    "waitid": 247,
    "pselect6": 270,
    "ppoll": 271,
    "epoll_pwait": 281,
    "accept4": 288,
    "io_uring_enter": 426,
    "epoll_pwait2": 441,
}
_SYSTEM_CALL = re.compile(r"^__(?:x64|ia32|arm64|riscv|s390x|se|do)_(?:sys|compat_sys)_(\w+)")
_LIBRARY_CALL = re.compile(r"^_*(?:GI_|libc_)*(\w+?)(?:64)?(?:@.*)?$")
_LOCKS = re.compile(
    r"^(_*futex_|_*lll_lock|_*pthread_(cond|mutex|rwlock|barrier).*(wait|lock)|sem_(timed|clock)?wait|"
    r"_*pthread_(clock|timed)?join)"
)
_PAGE_FAULT, _UNKNOWN, _NOTHING = -1, -2, -3
_FAULTS = re.compile(
    r"^(asm_)?exc_page_fault|^do_user_addr_fault|^handle_mm_fault|^do_page_fault|^do_mem_abort"
)
# What a function of the kernel waits for, as `rawfile.sampler_file` numbers it.
_FILES = (
    (1, re.compile(r"pipe_(read|write)$")),
    (2, re.compile(r"^(sock|tcp|unix|inet6?|udp|skb)_")),
    (3, re.compile(r"^(ext4|xfs|btrfs|nfs|overlayfs|ovl|filemap|folio|generic_file|blk|fuse)_")),
    (4, re.compile(r"^n?_?tty_")),
    (5, re.compile(r"^(ep_poll|eventfd_|do_epoll|timerfd_|do_poll|do_sys_poll|do_select)")),
)


def write_stacks(folder: Path, content: ImportedStacks) -> dict[str, int]:
    """Write the three tables below `folder`; returns their numbers of rows."""
    frames = content.frames
    count = len(frames["name"])
    rows = {
        "frames": write_columns(
            folder, "frames", {"frame": np.arange(count, dtype=np.int32), **frames}
        )
    }
    rows["stacks"] = _written(
        folder, "stacks", len(content.stacks["frame"]), lambda part: _stacks(content, part)
    )
    state, idle = _states(content)
    rows["samples"] = _written(
        folder, "samples", len(idle), lambda part: _samples(content, state, idle, part)
    )
    return rows


def _written(
    folder: Path, name: str, count: int, columns: Callable[[slice], dict[str, Any]]
) -> int:
    """Write so many rows of a table in parts, so that memory does not hold all of them twice."""
    if count <= _PART_ROWS:
        return write_columns(folder, name, columns(slice(0, count)))
    writer = TableWriter(folder, name)
    for first in range(0, count, _PART_ROWS):
        writer.add(columns(slice(first, min(first + _PART_ROWS, count))))
    return writer.rows


def _stacks(content: ImportedStacks, part: slice) -> dict[str, Any]:
    parent = content.stacks["parent"][part]
    return {
        "stack": np.arange(part.start, part.stop, dtype=np.int32),
        "parent": pa.array(parent, mask=parent < 0),
        "frame": content.stacks["frame"][part],
        "depth": content.stacks["depth"][part],
    }


def _samples(
    content: ImportedStacks, state: np.ndarray, idle: np.ndarray, part: slice
) -> dict[str, Any]:
    columns: dict[str, Any] = {name: values[part] for name, values in content.samples.items()}
    columns["kind"] = codes_to_names(columns["kind"].astype(np.int32), pa.array(SAMPLE_KINDS))
    columns["state"] = codes_to_names(state[part].astype(np.int32), pa.array(SAMPLE_STATES))
    columns["idle"] = idle[part]
    for name in ("stack", "waker"):
        columns[name] = pa.array(columns[name], mask=columns[name] < 0)
    return columns


def _states(content: ImportedStacks) -> tuple[np.ndarray, np.ndarray]:
    """The state (index into SAMPLE_STATES) of each sample, of waits by names on its stack, and
    whether it is idle.
    """
    samples = content.samples
    state, idle = samples["state"].copy(), samples["idle"].copy()
    waits = np.flatnonzero(samples["kind"] == SAMPLE_KINDS.index("offcpu"))
    if not len(waits):
        return state, idle
    system_call, file, evidence = (
        np.append(of_stack, none)[samples["stack"][waits]]
        for of_stack, none in zip(_of_stacks(content), (_UNKNOWN, 0, 0), strict=True)
    )
    is_preempted = state[waits] == SAMPLE_STATES.index("preempted")
    found, is_idle = waiting.states(system_call, file, is_preempted, evidence)
    state[waits] = SAMPLE_STATES.index(WAITS[0]) + found
    idle[waits] |= is_idle
    return state, idle


def _of_stacks(content: ImportedStacks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By stack: the system call that its innermost function names, the file it waits for, and its
    evidence.
    """
    names, layers = content.frames["name"], content.frames["layer"]
    told = [
        (_system_call(name), _file(name), waiting.evidence(name, layer))
        for name, layer in zip(names, layers, strict=True)
    ]
    own = np.array(told, np.int64).reshape(len(names), 3)[content.stacks["frame"]]
    found = own.copy()
    depth, parent = content.stacks["depth"], content.stacks["parent"]
    order = np.argsort(depth, kind="stable")
    levels = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    for first, behind in zip(levels[:-1].tolist(), levels[1:].tolist(), strict=True):
        rows = order[first:behind]
        around = found[parent[rows]]
        found[rows, 0] = np.where(own[rows, 0] == _NOTHING, around[:, 0], own[rows, 0])
        found[rows, 1] = np.where(own[rows, 1] == 0, around[:, 1], own[rows, 1])
        found[rows, 2] = waiting.deeper(around[:, 2], own[rows, 2])
    system_call = np.where(found[:, 0] == _NOTHING, _UNKNOWN, found[:, 0])
    return system_call, found[:, 1], found[:, 2]


def _system_call(name: str) -> int:
    """The number of the system call that a function is called like; _PAGE_FAULT, or _NOTHING."""
    if _FAULTS.match(name):
        return _PAGE_FAULT
    of_kernel = _SYSTEM_CALL.match(name)
    if of_kernel:
        return _NUMBERS.get(of_kernel[1], _UNKNOWN)
    if _LOCKS.match(name):
        return _NUMBERS["futex"]
    of_library = _LIBRARY_CALL.match(name)
    return _NUMBERS.get(of_library[1], _NOTHING) if of_library else _NOTHING


def _file(name: str) -> int:
    return next((kind for kind, pattern in _FILES if pattern.search(name)), 0)

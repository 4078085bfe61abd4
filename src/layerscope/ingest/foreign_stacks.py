"""Samples of a file of another program on their way into the tables: their stacks have names
already. Used by `stacks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from layerscope.ingest import waiting
from layerscope.ingest.process import IngestedProcess
from layerscope.ingest.sample_source import EVER, MOST_ROWS, SampledStacks, SampleSource
from layerscope.ingest.spans import Columns
from layerscope.ingest.stack_tree import NONE
from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES, WAITS
from layerscope.sources.imported import ImportedStacks

# Columns of samples that are taken over.
_AS_THEY_ARE = ("at_ns", "weight_ns", "count")
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


class NamedSamples(SampleSource):
    """The samples of a file. Its tracks are the numbers that its processes have for them."""

    def __init__(self, content: ImportedStacks, stacks: SampledStacks) -> None:
        self._samples = content.samples
        self._left = np.arange(len(content.samples["at_ns"]))
        self._owner: dict[int, int] = {}  # by track
        self._states = self._samples["state"].astype(np.int32)
        self._is_idle = self._samples["idle"].astype(np.bool_)
        self._find_states(content)
        frames = np.array(stacks.frames.add_named(content.frames), np.int32)
        of = content.stacks
        stacks.adopt(of["parent"], frames[of["frame"]], of["depth"])

    def _find_states(self, content: ImportedStacks) -> None:
        """Waits get the state that the functions on their stacks tell."""
        waits = np.flatnonzero(self._samples["kind"] == SAMPLE_KINDS.index("offcpu"))
        if not len(waits):
            return
        stack = self._samples["stack"][waits]
        system_call, file, evidence = (
            np.append(of_stack, none)[stack]
            for of_stack, none in zip(_of_stacks(content), (_UNKNOWN, 0, 0), strict=True)
        )
        is_preempted = self._states[waits] == SAMPLE_STATES.index("preempted")
        found, is_idle = waiting.states(system_call, file, is_preempted, evidence)
        self._states[waits] = SAMPLE_STATES.index(WAITS[0]) + found
        self._is_idle[waits] |= is_idle

    def advance(self) -> None:
        """All of them are there from the beginning."""

    def known_until_ns(self) -> int:
        """No more will come."""
        return EVER

    def find_processes(self, processes: Sequence[IngestedProcess]) -> None:
        """Its processes are those of the recording."""
        self._owner = {
            track: process.number for process in processes for track in process.events.tracks
        }

    def take(self, until_ns: dict[int, int]) -> Iterator[tuple[int, np.ndarray]]:
        """By process its samples from before a time, as places among those of the file."""
        left = self._left
        self._left = left[:0]
        track = self._samples["track"][left]
        owners = _by_number(self._owner)
        owner = owners[track]
        at_ns = self._samples["at_ns"][left]
        stays = np.ones(len(left), np.bool_)
        for process, cut_ns in until_ns.items():
            is_due = (owner == process) & (at_ns < cut_ns)
            due = np.flatnonzero(is_due)
            stays[due] = False
            for first in range(0, len(due), MOST_ROWS):
                some = due[first : first + MOST_ROWS]
                yield process, left[some]
        self._left = left[stays]

    def columns(self, rows: np.ndarray, process: IngestedProcess) -> Columns:
        """The columns of such samples."""
        samples = {name: values[rows] for name, values in self._samples.items()}
        columns = {name: samples[name].astype(np.int64) for name in _AS_THEY_ARE}
        keys = _by_number(process.tracks)
        zeros = np.zeros(len(rows), np.int64)
        columns["track"] = keys[samples["track"]]
        columns["waker"] = keys[samples["waker"]]
        columns["stack"] = samples["stack"].astype(np.int64)
        columns["kind"] = samples["kind"].astype(np.int32)
        columns["state"] = self._states[rows]
        columns["idle"] = self._is_idle[rows]
        columns["exact"] = samples["exact"].astype(np.bool_)
        columns["kernel_ns"] = zeros
        columns["evidence"] = zeros
        columns["rate_hz"] = np.full(len(rows), NONE, np.int32)
        return columns

    def name(self) -> None:
        """They have names."""

    def with_names(self, columns: Columns) -> Columns:
        """They have them already."""
        return columns


def _by_number(known: dict[int, int]) -> np.ndarray:
    """The values of `known` by key, NONE for others; the last place is for NONE itself."""
    values = np.full(max(known, default=-1) + 2, NONE, np.int32)
    values[list(known)] = list(known.values())
    return values


def _of_stacks(content: ImportedStacks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By stack: the system call that its innermost function names, the file it waits for, and its
    evidence.
    """
    frame, parent = content.stacks["frame"], content.stacks["parent"]
    system_call, file, evidence = (of_frame[frame] for of_frame in _of_frames(content))
    for rows in _by_depth(content.stacks["depth"]):
        caller = parent[rows]
        own_call, own_file = system_call[rows], file[rows]
        system_call[rows] = np.where(own_call == _NOTHING, system_call[caller], own_call)
        file[rows] = np.where(own_file == 0, file[caller], own_file)
        evidence[rows] = waiting.deeper(evidence[caller], evidence[rows])
    system_call = np.where(system_call == _NOTHING, _UNKNOWN, system_call)
    return system_call, file, evidence


def _of_frames(content: ImportedStacks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of each frame alone, by its name."""
    names, layers = content.frames["name"], content.frames["layer"]
    system_call = [_system_call(name) for name in names]
    file = [_file(name) for name in names]
    evidence = [waiting.evidence(*frame) for frame in zip(names, layers, strict=True)]
    return (
        np.array(system_call, np.int64),
        np.array(file, np.int64),
        np.array(evidence, np.int64),
    )


def _by_depth(depth: np.ndarray) -> Iterator[np.ndarray]:
    """The stacks that have a caller, those of one depth after the other."""
    order = np.argsort(depth, kind="stable")
    deepest = int(depth.max(initial=0))
    depths = np.arange(1, deepest + 2)
    bounds = np.searchsorted(depth[order], depths).tolist()
    for first, behind in pairwise(bounds):
        yield order[first:behind]


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

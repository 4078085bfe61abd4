"""The instant events "[memory]" that torch.profiler writes with `profile_memory=True`: allocations,
releases (with negative bytes) and what the allocator held then. Used by `kineto`.

An event tells the thread, not the operator: that is what was open on the thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from layerscope.model.distinct import distinct, with_places
from layerscope.model.events import Problem
from layerscope.model.frameworks import allocators, step_prefixes
from layerscope.model.layers import KINDS, MEMORY, PHASES
from layerscope.model.memory import CPU
from layerscope.sources.imported import ImportedMemory
from layerscope.sources.memory_counters import MemoryCounters
from layerscope.sources.trace_scan import NONE

if TYPE_CHECKING:
    from layerscope.sources.kineto_spans import KinetoSpans
    from layerscope.sources.trace_scan import Columns

NAME = "[memory]"
# What PyTorch calls its types of devices; those of AMD are "cuda" in Python too.
_DEVICES = {0: CPU, 1: "cuda", 6: "cuda", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia"}
_OPERATORS = [KINDS.index(kind) for kind in ("function", "backward", "optimizer")]
_PHASE_OF_KIND = {
    KINDS.index("backward"): PHASES.index("backward"),
    KINDS.index("optimizer"): PHASES.index("optimizer"),
    KINDS.index("loader"): PHASES.index("loading"),
}
_FORWARD, _OTHER = PHASES.index("forward"), PHASES.index("other")
# The columns of a scan that have them (native/traces).
_COLUMN_OF = {
    "address": "external",
    "bytes": "correlation",
    "allocated": "stream",
    "reserved": "sequence",
    "device_type": "forward",
    "device": "device",
}
# Where they are not told.
_USUAL = {"reserved": 0, "device": -1}
_MOST_NUMBER, _MOST_DEVICES = 1 << 62, 1 << 15
# Devices may have the same addresses: their number stands above those of all addresses.
_ADDRESS_BITS = 57
# What the numbers of a type and of a device are packed to, and where none begins.
_TYPE_UNIT, _NO_DEVICE = 1 << 16, 1


class MemoryEvents(Struct):
    """Those of a trace in the order of time, as columns; `device`: index into `devices`. `pid` and
    `tid`: as the scan numbers them.

    `rejected`: how many have numbers that cannot be; `without_address`: how many tell no block, as
    PyTorch wrote them until 2021.
    """

    at_ns: np.ndarray
    pid: np.ndarray
    tid: np.ndarray
    address: np.ndarray
    bytes: np.ndarray
    allocated: np.ndarray
    reserved: np.ndarray
    device: np.ndarray
    devices: list[str] = field(default_factory=list)
    rejected: int = 0
    without_address: int = 0


def name_in(names: list[str]) -> int:
    """The number of their name; one that no event has where there are none."""
    if NAME not in names:
        return -2
    return names.index(NAME)


def memory_events(instants: Columns, names: list[str]) -> MemoryEvents:
    """Those among the instants of a trace; none: memory was not profiled."""
    rows = np.flatnonzero(instants["name"] == name_in(names))
    columns = {}
    for name, column in _COLUMN_OF.items():
        columns[name] = instants[column].take(rows)
    for name, usual in _USUAL.items():
        values = columns[name]
        columns[name] = np.where(values == NONE, usual, values)
    is_kept = _are_possible(columns)
    is_untold = (columns["address"] == NONE) & (columns["allocated"] == NONE)
    without_address = np.count_nonzero(is_untold)
    rejected = np.count_nonzero(~is_kept) - without_address
    order = np.argsort(instants["time_ns"][rows], kind="stable")
    order = order[is_kept[order]]
    columns = {name: values.take(order) for name, values in columns.items()}
    device = columns.pop("device") + _NO_DEVICE
    packed = columns.pop("device_type") * _TYPE_UNIT + device
    different, place = with_places(packed)
    places = {name: instants[name].take(rows[order]) for name in ("pid", "tid")}
    return MemoryEvents(
        at_ns=instants["time_ns"].take(rows[order]),
        device=place,
        devices=[_device(one) for one in different.tolist()],
        rejected=int(rejected),
        without_address=int(without_address),
        **places,
        **columns,
    )


def _are_possible(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Whether the numbers of each event are such as there can be."""
    kind = columns["device_type"]
    device = columns["device"]
    found = (kind >= 0) & (kind < _MOST_DEVICES)
    found &= (device >= -1) & (device < _MOST_DEVICES)
    found &= columns["address"] >= 0
    found &= columns["bytes"] != 0
    for values in columns.values():
        found &= values > -_MOST_NUMBER
        found &= values < _MOST_NUMBER
    return found


def _device(packed: int) -> str:
    """What PyTorch calls a device."""
    kind, device = divmod(packed, _TYPE_UNIT)
    name = _DEVICES.get(kind, f"device type {kind}")
    index = device - _NO_DEVICE
    return name if name == CPU or index < 0 else f"{name}:{index}"


def blocks(
    events: MemoryEvents, trace: KinetoSpans, track: np.ndarray, names: dict[str, int]
) -> ImportedMemory:
    """Allocations and releases on these tracks; `names`: the texts by their number, which grow."""
    operator, phase = _open_at(trace, track, events.at_ns)
    numbers = [names.setdefault(text, len(names)) for text in events.devices]
    devices = np.array(numbers, np.int32)
    bits = np.uint64(_ADDRESS_BITS)
    above = events.device.astype(np.uint64) << bits
    address = events.address.astype(np.uint64)
    return ImportedMemory(
        at_ns=events.at_ns,
        block=address ^ above,
        bytes=np.abs(events.bytes),
        is_release=events.bytes < 0,
        track=track,
        operator=operator,
        device=devices[events.device],
        phase=phase,
    )


def add_counters(events: MemoryEvents, counters: MemoryCounters, track: np.ndarray) -> None:
    """What was allocated and what was reserved of each device; the CPU's allocator reserves
    nothing.
    """
    for number, device in enumerate(events.devices):
        rows = np.flatnonzero(events.device == number)
        at_ns, first = events.at_ns[rows], int(track[rows[0]])
        counters.add(f"allocated_bytes of {device}", at_ns, events.allocated[rows], first)
        reserved = events.reserved[rows]
        if reserved.any():
            counters.add(f"reserved_bytes of {device}", at_ns, reserved, first)


def problems(events: MemoryEvents) -> list[Problem]:
    """What was allocated before it was profiled is a number, and no blocks."""
    found = []
    for number, device in enumerate(events.devices):
        first = np.flatnonzero(events.device == number)[0]
        before = int(events.allocated[first] - events.bytes[first])
        if before <= 0:
            continue
        what = (
            f"{before:,} bytes of {device} were allocated before the profile began: they are in "
            f"the counter `allocated_bytes of {device}`, and no blocks"
        )
        remedy = "profile from the beginning of the program on"
        found.append(Problem(MEMORY, "profile_begins_late", what, remedy, "these blocks"))
    return found


def _open_at(
    trace: KinetoSpans, track: np.ndarray, at_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By moment of a thread, the name of the operator that was open (-1: none), and the phase."""
    if not len(at_ns):
        return np.zeros(0, np.int32), np.zeros(0, np.uint8)
    row = _last_started(trace, track, at_ns)
    end_ns = trace.start_ns + trace.dur_ns
    parent = _parents(trace)
    is_operator = np.isin(trace.kind, _OPERATORS)
    of_allocators = _numbers_of(trace.names, allocators())
    only_allocates = np.isin(trace.name, of_allocators)
    phase_of_kind = np.full(len(KINDS), -1, np.int64)
    for kind, code in _PHASE_OF_KIND.items():
        phase_of_kind[kind] = code
    operator = np.full(len(row), -1, np.int32)
    is_found = np.zeros(len(row), np.bool_)
    phase = np.full(len(row), _OTHER, np.int64)
    has_scope = np.zeros(len(row), np.bool_)
    is_forward = np.zeros(len(row), np.bool_)
    is_step = np.isin(trace.name, _steps_of_optimizers(trace.names))
    moment = np.flatnonzero(row >= 0)
    while len(moment):
        at = row[moment]
        is_open = end_ns[at] >= at_ns[moment]
        open_, here = moment[is_open], at[is_open]
        # The innermost one that does more than allocate, else the outermost one.
        is_new = is_operator[here] & ~is_found[open_]
        operator[open_[is_new]] = trace.name[here[is_new]]
        does_more = is_new & ~only_allocates[here]
        is_found[open_[does_more]] = True
        # The innermost scope. Without one, and in the closure of an optimizer's step, which has no
        # gradients of its own, an operator that autograd numbered belongs to a forward pass.
        scope = phase_of_kind[trace.kind[here]]
        is_scope = (scope >= 0) & ~has_scope[open_]
        is_closure = is_step[here] & is_forward[open_]
        meant = np.where(is_closure, _FORWARD, scope)
        phase[open_[is_scope]] = meant[is_scope]
        has_scope[open_[is_scope]] = True
        is_numbered = trace.seq[here] >= 0
        is_forward[open_[~is_scope & is_numbered]] = True
        row[moment] = parent[at]
        moment = moment[row[moment] >= 0]
    phase[is_forward & ~has_scope] = _FORWARD
    return operator, phase.astype(np.uint8)


def _last_started(trace: KinetoSpans, track: np.ndarray, at_ns: np.ndarray) -> np.ndarray:
    """The last span that had started on each thread at each moment, -1: none."""
    found = np.full(len(track), -1, np.int64)
    for one in distinct(track).tolist():
        bounds = (one, one + 1)
        first, last = np.searchsorted(trace.track, bounds)
        starts_ns = trace.start_ns[first:last]
        moments = np.flatnonzero(track == one)
        started = np.searchsorted(starts_ns, at_ns[moments], side="right")
        has_span = started > 0
        with_span = moments[has_span]
        found[with_span] = first + started[has_span] - 1
    return found


def _parents(trace: KinetoSpans) -> np.ndarray:
    """The span that each one lies in, -1: none."""
    parent = np.full(len(trace.depth), -1, np.int64)
    outer = np.flatnonzero(trace.depth == 0)
    for depth in range(1, int(trace.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(trace.depth == depth)
        if len(outer):
            place = np.searchsorted(outer, rows) - 1
            parent[rows] = np.where(place >= 0, outer[place], -1)
        outer = rows
    return parent


def _steps_of_optimizers(names: list[str]) -> list[int]:
    """The numbers of the names of steps, not of what sets gradients to zero."""
    begin = step_prefixes()
    return [number for number, name in enumerate(names) if name.startswith(begin)]


def _numbers_of(names: list[str], wanted: tuple[str, ...]) -> list[int]:
    """The numbers of the wanted ones among these names."""
    numbered = enumerate(names)
    return [number for number, name in numbered if name in wanted]

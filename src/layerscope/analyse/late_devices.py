"""Which device of one process comes last to the collectives of its compiled programs.

Several devices that one program drives, also those that a host pretends to have, meet in operators
whose arguments tell the opcode and the device. The n-th of one collective on each device belongs to
the n-th on the others: who begins last was waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.analyse.step_times import Array, Int64s
from layerscope.model.stored_json import decoded
from layerscope.recording.reader import Reader

_COLLECTIVES = frozenset(
    {
        "all-reduce",
        "all-gather",
        "all-to-all",
        "collective-permute",
        "reduce-scatter",
    }
)
# One of so many may come last by chance, and fewer meetings say nothing.
_LEAST_SHARE, _FEWEST = 0.6, 8


class LateDevice(Struct, frozen=True):
    """`wait_ns`: for how long the others waited for it each time, on average."""

    device: int
    last: int
    meetings: int
    wait_ns: float


class _Meetings(Struct):
    """Of one collective, by device, the begins of its calls."""

    starts: dict[int, list[Array]] = field(default_factory=dict)

    def matrix(self) -> Int64s | None:
        """A row for each device; None: some of them are missing here."""
        rows = [np.sort(np.concatenate(parts)) for _, parts in sorted(self.starts.items())]
        counts = {len(row) for row in rows}
        if len(rows) < 2 or len(counts) > 1:
            return None
        return np.array(rows, np.int64)


def late_device(reader: Reader) -> LateDevice | None:
    """The device that the others wait for; None: there is none, or it is another one each time."""
    told = _collectives(reader)
    if not told:
        return None
    found: dict[tuple[str, str, str], _Meetings] = {}
    for spans in reader.pieces("spans", ["start_ns", "args"]):
        rows = np.flatnonzero(np.isin(spans["args"], list(told)))
        args, start_ns = spans["args"][rows], spans["start_ns"][rows]
        for key in np.unique(args).tolist():
            *name, device = told[key]
            meetings = found.setdefault((name[0], name[1], name[2]), _Meetings())
            meetings.starts.setdefault(int(device), []).append(start_ns[args == key])
    devices = sorted({device for one in found.values() for device in one.starts})
    last = np.zeros(len(devices), np.int64)
    wait_ns = np.zeros(len(devices))
    for one in found.values():
        starts = one.matrix()
        if starts is None or len(starts) != len(devices):
            continue
        came = starts.argmax(axis=0)
        waited = (starts.max(axis=0) - starts).sum(axis=0) / (len(devices) - 1)
        last += np.bincount(came, minlength=len(devices))
        wait_ns += np.bincount(came, weights=waited, minlength=len(devices))
    return _latest(devices, last, wait_ns)


def _latest(devices: list[int], last: Int64s, wait_ns: Array) -> LateDevice | None:
    meetings = int(last.sum())
    if meetings < _FEWEST:
        return None
    most = int(last.argmax())
    times = int(last[most])
    if times < _LEAST_SHARE * meetings:
        return None
    return LateDevice(devices[most], times, meetings, float(wait_ns[most] / times))


def _collectives(reader: Reader) -> dict[int, tuple[str, str, str, int]]:
    """By key of arguments: operator, module and program of a collective, and its device."""
    args = reader.arrays("args", ["args", "json"])
    found = {}
    for key, text in zip(args["args"].tolist(), args["json"].tolist(), strict=True):
        if '"device_ordinal"' not in text:
            continue
        told = decoded(text.encode(), dict[str, Any])
        device = told.get("device_ordinal")
        if told.get("opcode") in _COLLECTIVES and isinstance(device, int):
            program = [str(told.get(name)) for name in ("hlo_op", "hlo_module", "program_id")]
            found[key] = (program[0], program[1], program[2], device)
    return found

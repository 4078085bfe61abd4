"""Where the time of a GPU went: computing, communicating, copying, or nothing at all.

Span: from the start of its first work to the end of its last. Busy: some work was running. Exposed
communication: a collective was running and no computation. Exposed copies: a copy was running, and
neither computation nor communication. Overlap: the part of the time of communication in which
computation was running.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.gpu.sweep import Int64s, combined_ns
from layerscope.analyse.gpu.work import COMMUNICATION, COMPUTE, COPY, KINDS, GpuWork

_COMPUTE, _COMMUNICATION, _COPY = 1 << COMPUTE, 1 << COMMUNICATION, 1 << COPY


class Breakdown(Struct, frozen=True):
    """Sums of one GPU in ns. `overlap_share`: None without communication."""

    count: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    copy_ns: int
    exposed_copy_ns: int
    overlap_share: float | None


def breakdown(work: GpuWork) -> Breakdown:
    """The sums of `work`, which is that of one GPU."""
    sums = combined_ns(work.start_ns, work.end_ns, work.kind, len(KINDS))
    communication_ns = _with(sums, _COMMUNICATION)
    both_ns = _with(sums, _COMPUTE | _COMMUNICATION)
    exposed = sums[_COMMUNICATION] + sums[_COMMUNICATION | _COPY]
    busy = sums[1:]
    return Breakdown(
        count=len(work),
        span_ns=int(sums.sum()),
        busy_ns=int(busy.sum()),
        idle_ns=int(sums[0]),
        compute_ns=_with(sums, _COMPUTE),
        communication_ns=communication_ns,
        exposed_communication_ns=int(exposed),
        copy_ns=_with(sums, _COPY),
        exposed_copy_ns=int(sums[_COPY]),
        overlap_share=both_ns / communication_ns if communication_ns else None,
    )


def _with(sums: Int64s, kinds: int) -> int:
    """The time in which all these kinds were running, whatever else was."""
    masks = np.arange(len(sums))
    has_all = masks & kinds == kinds
    return int(sums[has_all].sum())


def combinations(sums: Int64s) -> list[tuple[str, int]]:
    """Name and time of each combination of kinds that ran together, the longest first."""
    named = []
    for mask, lasted_ns in enumerate(sums.tolist()):
        kinds = [name for place, name in enumerate(KINDS) if mask >> place & 1]
        if mask and lasted_ns:
            named.append((" + ".join(kinds), lasted_ns))
    named.sort(key=lambda one: -one[1])
    return named

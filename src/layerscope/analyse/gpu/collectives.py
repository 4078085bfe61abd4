"""Collectives of several ranks, each call matched with that of the others.

Ranks of a process group call its collectives in the same order. So the calls of a rank are
numbered in each group by their starts, and those with the same number belong together. Where the
calls of ranks differ in name, size or type of data, or in their number, that is said: then the
trace of a rank began in the middle, or the ranks have gone apart.

The group is the argument `Process Group Name` with its ranks; a trace that tells none has one
group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analyse.gpu import arguments
from layerscope.analyse.gpu.clock_fit import NO_CHANGE, ClockFit, SharedEnds, fit_clocks
from layerscope.analyse.gpu.work import COMMUNICATION, WORK

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Bytes of an element, by the names of types in traces.
_ELEMENT_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Half": 2, "BFloat16": 2, "Short": 2, "Float": 4, "Int": 4,
    "Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
}  # fmt: skip
# ncclDevKernel_AllReduce_Sum_f32_RING_LL(...), ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(...)
_OF_KERNEL = re.compile(r"[nr]ccl(?:Dev)?Kernel_(?:Generic_)?([A-Za-z]+)")
# One name for each, whatever a library calls it.
_VARIANT = re.compile(r"(_into)?(_tensor)?(_base)?(_single)?(_coalesced)?$")
_NAMES = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "all_to_allv": "all_to_all",
    "sendrecv": "send_recv",
    "send": "send_recv",
    "recv": "send_recv",
}
# Nobody leaves these before everybody has come.
WAIT_FOR_ALL = ("all_reduce", "reduce_scatter", "all_gather")
_QUERY = f"""
    WITH operators AS (
        SELECT to_span AS span, min(from_span) AS operator
        FROM links WHERE kind = 'operator_gpu' GROUP BY to_span
    )
    SELECT work.span, rank, work.start_ns, end_ns, work.name,
           {{columns}}
    FROM ({WORK}) AS work
         LEFT JOIN operators USING (span)
         LEFT JOIN spans AS operator ON operator.span = operators.operator
         LEFT JOIN args AS own ON own.args = work.args
         LEFT JOIN args AS asked ON asked.args = operator.args
    WHERE work.kind = {COMMUNICATION}
    ORDER BY rank, work.start_ns, work.span"""
_TEXTS = {
    "collective": "Collective name",
    "process_group": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "dtype": "dtype",
}
_NUMBERS = {"in_elements": "In msg nelems", "out_elements": "Out msg nelems"}


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective on one rank, its times in ns. `elements`: in and out; None: not told."""

    rank: int
    start_ns: int
    end_ns: int
    name: str
    dtype: str
    in_elements: int | None
    out_elements: int | None

    @property
    def size_bytes(self) -> int | None:
        """What it is about as a whole, on each rank: of an all-gather what comes out."""
        elements = self.out_elements if self.name == "all_gather" else self.in_elements
        bytes_each = _ELEMENT_BYTES.get(self.dtype)
        return None if elements is None or bytes_each is None else elements * bytes_each


@dataclass(frozen=True, slots=True)
class Collective:
    """The calls of all ranks of a group that belong together, by rank, with their times on one
    clock.
    """

    group: str
    number: int
    calls: tuple[CollectiveCall, ...]

    @property
    def ranks(self) -> list[int]:
        """Who took part."""
        return [call.rank for call in self.calls]

    @property
    def start_ns(self) -> int:
        """When the first rank came."""
        return min(call.start_ns for call in self.calls)

    @property
    def wait_ns(self) -> int:
        """How long the ranks waited for the last one, all together."""
        last_ns = self.last.start_ns
        return sum(last_ns - call.start_ns for call in self.calls)

    @property
    def last(self) -> CollectiveCall:
        """That of the rank which came last."""
        return max(self.calls, key=lambda call: call.start_ns)

    @property
    def skew_ns(self) -> int:
        """From the start of the first to the start of the last."""
        return self.last.start_ns - self.start_ns

    @property
    def transfer_ns(self) -> int:
        """The shortest duration of any rank: the last one to come waits for nobody."""
        return min(call.end_ns - call.start_ns for call in self.calls)

    @property
    def is_same(self) -> bool:
        """Whether the ranks called the same."""
        told = {(call.name, call.dtype, call.in_elements) for call in self.calls}
        return len(told) == 1


@dataclass(frozen=True, slots=True)
class Job:
    """The collectives of a recording in the order of their first starts; the fit of the clock of
    each rank, and what has to be said.
    """

    collectives: list[Collective]
    fits: Mapping[int, ClockFit]
    notes: tuple[str, ...]


def bus_factor(name: str, ranks: int) -> float | None:
    """What makes bus bandwidth of algorithm bandwidth (nccl-tests, PERFORMANCE.md); None: not
    defined.
    """
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    if name in ("broadcast", "reduce"):
        return 1.0
    return None


def read_job(reader: Reader) -> Job:
    """The collectives that at least two ranks took part in."""
    groups = _groups(reader)
    ends = [_shared_ends(ranks) for ranks in groups.values() if len(ranks) > 1]
    fits = fit_clocks([one for one in ends if one is not None])
    found = [
        collective
        for group, ranks in groups.items()
        if len(ranks) > 1
        for collective in _matched(group, ranks, fits)
    ]
    found.sort(key=lambda one: one.start_ns)
    return Job(found, fits, _notes(groups, found, fits))


def _groups(reader: Reader) -> dict[str, dict[int, list[CollectiveCall]]]:
    """By group and rank the calls in their order."""
    columns = []
    for name, key in _TEXTS.items():
        columns.append(f"{_either(key)} AS {name}")
    for name, key in _NUMBERS.items():
        columns.append(f"TRY_CAST({_either(key)} AS BIGINT) AS {name}")
    question = _QUERY.format(columns=", ".join(columns))
    found = reader.query(question)
    groups: dict[str, dict[int, list[CollectiveCall]]] = {}
    for row in found.to_pylist():
        about = filter(None, (row["process_group"], row["group_ranks"]))
        ranks = groups.setdefault(" ".join(about), {})
        of_rank = ranks.setdefault(row["rank"], [])
        of_rank.append(_call(row))
    return groups


def _either(key: str) -> str:
    """An argument of the kernel, else of the operator that launched it."""
    own, asked = (arguments.text(key, table) for table in ("own", "asked"))
    return f"coalesce({own}, {asked})"


def _call(row: Mapping[str, Any]) -> CollectiveCall:
    told = row["collective"]
    if not told:
        of_kernel = _OF_KERNEL.search(row["name"])
        told = of_kernel[1] if of_kernel else row["name"]
    plain = _VARIANT.sub("", told.strip("_").lower())
    return CollectiveCall(
        rank=row["rank"],
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        name=_NAMES.get(plain, plain),
        dtype=row["dtype"] or "",
        in_elements=row["in_elements"],
        out_elements=row["out_elements"],
    )


def _count(ranks: Mapping[int, list[CollectiveCall]]) -> int:
    """How many calls all ranks have."""
    return min(len(calls) for calls in ranks.values())


def _shared_ends(ranks: Mapping[int, list[CollectiveCall]]) -> SharedEnds | None:
    """The ends of those that wait for all."""
    ends: list[list[int]] = []
    for number in range(_count(ranks)):
        calls = [of_rank[number] for of_rank in ranks.values()]
        names = {call.name for call in calls}
        if len(names) == 1 and names <= set(WAIT_FOR_ALL):
            ends.append([call.end_ns for call in calls])
    if not ends:
        return None
    return SharedEnds(tuple(ranks), np.array(ends, np.int64))


def _matched(
    group: str, ranks: Mapping[int, list[CollectiveCall]], fits: Mapping[int, ClockFit]
) -> Iterator[Collective]:
    corrected = {
        rank: _corrected(calls, fits.get(rank, NO_CHANGE)) for rank, calls in ranks.items()
    }
    for number in range(_count(ranks)):
        calls = [of_rank[number] for of_rank in corrected.values()]
        yield Collective(group, number, tuple(calls))


def _corrected(calls: list[CollectiveCall], fit: ClockFit) -> list[CollectiveCall]:
    """The calls of a rank on the clock of all."""
    import dataclasses

    starts = _times(fit, [call.start_ns for call in calls])
    ends = _times(fit, [call.end_ns for call in calls])
    return [
        dataclasses.replace(call, start_ns=start_ns, end_ns=end_ns)
        for call, start_ns, end_ns in zip(calls, starts, ends, strict=True)
    ]


def _times(fit: ClockFit, times_ns: list[int]) -> list[int]:
    column = np.array(times_ns, np.int64)
    corrected: list[int] = fit.corrected(column).tolist()
    return corrected


def _notes(
    groups: Mapping[str, Mapping[int, list[CollectiveCall]]],
    found: list[Collective],
    fits: Mapping[int, ClockFit],
) -> tuple[str, ...]:
    notes = []
    fitted = [fit for fit in fits.values() if fit.collectives]
    if fitted:
        residual_us = max(fit.residual_ns for fit in fitted) / 1_000
        offset_us = max(abs(fit.offset_ns) for fit in fitted) / 1_000
        notes.append(
            f"The clocks of {len(fits)} ranks were fitted to the ends of collectives: they were up "
            f"to {offset_us:,.1f} us apart, and are within {residual_us:,.1f} us now (median)."
        )
    elif found:
        notes.append(
            "The clocks of the ranks are taken as they are: fewer than 10 collectives that wait "
            "for all ranks are in the traces."
        )
    notes += _mismatches(groups, found)
    return tuple(notes)


def _mismatches(
    groups: Mapping[str, Mapping[int, list[CollectiveCall]]], found: list[Collective]
) -> list[str]:
    said = []
    different = [one for one in found if not one.is_same]
    if different:
        first = different[0]
        told = sorted({f"{call.name} of {call.in_elements} {call.dtype}" for call in first.calls})
        said.append(
            f"In {len(different)} of {len(found)} collectives the ranks called different ones, "
            f"first in number {first.number} of group {first.group or 'of all ranks'}: "
            f"{', '.join(told)}. Traces that begin at different steps look like this, and jobs "
            "that hang."
        )
    for group, ranks in groups.items():
        counts = {len(calls) for calls in ranks.values()}
        if len(ranks) > 1 and len(counts) > 1:
            said.append(
                f"The ranks have {min(counts)} to {max(counts)} collectives in group "
                f"{group or 'of all ranks'}: those beyond the fewest are left out."
            )
    return said

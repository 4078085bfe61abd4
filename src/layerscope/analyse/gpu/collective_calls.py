"""The collectives of a rank as one small table: all that questions across ranks need of it.

Ranks of a process group call its collectives in the same order. So the calls of a rank are
numbered in each group by their starts. The group is the argument `Process Group Name` with its
ranks; a trace that tells none has one group.

The parts of a call (`rank_timeline`) are of the window before it: from the end of the collective
before, on any group, or else the beginning of the trace, to its start.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analyse.gpu import arguments
from layerscope.analyse.gpu.rank_timeline import PARTS, read_loading, timeline
from layerscope.analyse.gpu.work import COMMUNICATION, WORK, GpuWork, parts_of, read_work
from layerscope.recording.apart import ranks_apart

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.analyse.gpu.intervals import Intervals
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


_TEXTS = ("group", "name", "dtype")


def _either(key: str) -> str:
    """An argument of the kernel, else of the operator that launched it."""
    own, asked = (arguments.text(key, table) for table in ("own", "asked"))
    return f"coalesce({own}, {asked})"


# The work of the GPUs of a rank, which is asked of twice.
_SOURCE = "work_of_rank"
_KEPT = f"CREATE OR REPLACE TEMP TABLE {_SOURCE} AS {WORK}"
_CALLS = f"""
    WITH operators AS (
        SELECT to_span AS span, min(from_span) AS operator
        FROM links WHERE kind = 'operator_gpu' GROUP BY to_span
    ), calls AS (
        SELECT work.span, rank, work.start_ns, end_ns,
               coalesce({_either("Collective name")}, work.name) AS told,
               concat_ws(' ', {_either("Process Group Name")}, {_either("Process Group Ranks")})
                   AS "group",
               coalesce({_either("dtype")}, '') AS dtype,
               try_cast({_either("In msg nelems")} AS BIGINT) AS in_elements,
               try_cast({_either("Out msg nelems")} AS BIGINT) AS out_elements
        FROM {_SOURCE} AS work
             LEFT JOIN operators USING (span)
             LEFT JOIN spans AS operator ON operator.span = operators.operator
             LEFT JOIN args AS own ON own.args = work.args
             LEFT JOIN args AS asked ON asked.args = operator.args
        WHERE work.kind = {COMMUNICATION}
    )
    SELECT rank::INTEGER AS rank, start_ns, end_ns, told, "group", dtype, in_elements, out_elements,
           row_number() OVER (PARTITION BY rank, "group" ORDER BY start_ns, span) - 1 AS number
    FROM calls ORDER BY rank, start_ns, span"""


def columns() -> pa.Schema:
    """Columns of the table: times in ns; null: not told."""
    import pyarrow as pa

    fields = [pa.field("rank", pa.int32())]
    fields += [pa.field(name, pa.string()) for name in _TEXTS]
    numbers = ("number", "start_ns", "end_ns", "in_elements", "bytes", *PARTS)
    fields += [pa.field(name, pa.int64()) for name in numbers]
    return pa.schema(fields)


def read_calls(reader: Reader) -> pa.Table:
    """The calls of all ranks, each rank reduced by itself. Texts, which are few, are dictionaries:
    there is a row for each call of each rank.
    """
    import pyarrow as pa

    reduced = [_coded(_of_rank(its)) for its in ranks_apart(reader)]
    return pa.concat_tables(reduced).unify_dictionaries()


def _coded(calls: pa.Table) -> pa.Table:
    for name in _TEXTS:
        place = calls.column_names.index(name)
        texts = calls[name].combine_chunks()
        calls = calls.set_column(place, name, texts.dictionary_encode())
    return calls


def _of_rank(reader: Reader) -> pa.Table:
    import pyarrow as pa

    reader.execute(_KEPT)
    found = reader.query(_CALLS)
    if not found.num_rows:
        return columns().empty_table()
    names = _mapped(found["told"], collective_name)
    about = {
        "name": names,
        "bytes": _bytes(names, found),
        **dict(zip(PARTS, _parts(reader, found), strict=True)),
    }
    for name, values in about.items():
        found = found.append_column(name, pa.array(values))
    return found.select(columns().names).cast(columns())


@cache
def collective_name(told: str) -> str:
    """One name for what a trace tells, or for the kernel."""
    of_kernel = _OF_KERNEL.search(told)
    name = of_kernel[1] if of_kernel else told
    plain = _VARIANT.sub("", name.strip("_").lower())
    return _NAMES.get(plain, plain)


def _mapped(texts: pa.ChunkedArray, function: Any) -> pa.Array:
    """What a function gives for each of few different texts."""
    import pyarrow as pa

    coded = texts.combine_chunks().dictionary_encode()
    values = [function(text) for text in coded.dictionary.to_pylist()]
    return pa.array(values).take(coded.indices)


def _bytes(names: pa.Array, found: pa.Table) -> pa.Array:
    """What each is about as a whole, on each rank: of an all-gather what comes out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_gather = pc.equal(names, "all_gather")
    elements = pc.if_else(is_gather, found["out_elements"], found["in_elements"])
    each = _mapped(found["dtype"], _ELEMENT_BYTES.get)
    return pc.multiply(elements, each.cast(pa.int64()))


def _parts(reader: Reader, found: pa.Table) -> list[np.ndarray]:
    """For each of PARTS, its time in the window of each call."""
    work = read_work(reader, _SOURCE)
    loading = read_loading(reader)
    rank = found["rank"].to_numpy()
    starts_ns = found["start_ns"].to_numpy()
    ends_ns = found["end_ns"].to_numpy()
    of_ranks = []
    for part in parts_of(rank):
        its = int(rank[part.start])
        mine = work.chosen(work.rank == its)
        loads = loading.get(its)
        latest_ns = np.maximum.accumulate(ends_ns[part])
        first_ns = _beginning_ns(mine, loads)
        from_ns = np.concatenate(([first_ns], latest_ns[:-1]))
        times_ns = timeline(mine, loads).in_windows(from_ns, starts_ns[part])
        of_ranks.append(np.stack(times_ns))
    return list(np.concatenate(of_ranks, axis=1))


def _beginning_ns(work: GpuWork, loads: Intervals | None) -> int:
    first_ns = int(work.start_ns.min())
    if loads is None:
        return first_ns
    return min(first_ns, int(loads.start_ns[0]))

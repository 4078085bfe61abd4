"""The events of a trace as HolisticTraceAnalysis (HTA) 0.6.0 takes them.

A time is a double of microseconds; the start is rounded up to a whole one, the end down. What HTA
counts as work of a GPU is all that has a stream: kernels, copies and memory sets, but waits of the
host for a stream and operators of Triton, too. The last step of several is left out: what the host
did from its start on, and the work of GPUs that has no call before it. A kernel has its type by
its name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.gpu.arguments import number
from layerscope.model.stored_json import decoded

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]

COMPUTATION, COMMUNICATION, MEMORY, OTHER = range(4)
# As HTA writes them, in the order in which it names those that overlap.
TYPES = ("COMPUTATION", "COMMUNICATION", "MEMORY")
_NONE = -1
# The source takes no larger one either; an int64 has room for the times of the trace behind it.
_MOST_BASE_NS = 2**61
_COMMUNICATION = re.compile(r"nccl|hip|hccl|.*ncclKernel", re.DOTALL)
_MEMORY = re.compile(r"(hip)?(Memcpy|Memset)|dma")
_NO_KERNEL = re.compile(
    r".*(Memcpy|Memset|dma|Sync)|Stream Wait Event|cuda.*LaunchKernel|runFunction|job_exe|packet"
    r"|pe_exe|cpum_exe_subgraph|collective_subgraph_execution",
    re.DOTALL,
)
# The number of a stream is in its name, and in the arguments of an operator of Triton.
_SPANS = f"""
    SELECT spans.span, coalesce(processes.rank, 0) AS rank, tracks.process,
           CASE WHEN layer = 'operators' THEN {number("stream")}
                WHEN tracks.kind = 'stream'
                THEN try_cast(regexp_extract(tracks.name, '-?[0-9]+$') AS BIGINT)
           END AS stream,
           layer = 'gpu' AS is_work, layer = 'runtime' AND tracks.kind <> 'stream' AS is_call,
           spans.start_ns, spans.start_ns + spans.dur_ns AS end_ns,
           correlation, spans.name::VARCHAR AS name,
           {number("memory bandwidth .GB/s.", "DOUBLE")} AS rate
    FROM spans JOIN tracks USING (track) JOIN processes USING (process)
         LEFT JOIN args USING (args)
    WHERE layer IN ('gpu', 'runtime') OR layer = 'operators' AND args.json LIKE '%"stream":%'
    ORDER BY process, spans.start_ns, spans.span"""
_STEPS = """
    SELECT tracks.process, count(DISTINCT spans.name) AS names, max(spans.start_ns) AS last_ns
    FROM spans JOIN tracks USING (track)
    WHERE layer = 'operators' AND tracks.kind <> 'stream'
      AND starts_with(spans.name::VARCHAR, 'ProfilerStep') GROUP BY ALL"""
_CLOCK = "SELECT clock_value - run_ns AS at_ns FROM clock_readings WHERE clock = 'realtime'"
_PROCESSES = "SELECT process, about FROM processes"


class HtaEvents(Struct, frozen=True):
    """The events of one rank in the order of their starts, in microseconds, without the last step.

    Of GPUs: `stream`, `kind` (COMPUTATION and so on), `is_work` (kernel, copy or memory set) and
    `rate` (GB/s; NaN: not told), with the call that launched it: its start `call_us`, its end
    `called_us` and its name `call`; NaN and "" without one.
    """

    rank: int
    start_us: Doubles
    end_us: Doubles
    stream: Int64s
    kind: Int64s
    is_work: Bools
    name: NDArray[np.object_]
    rate: Doubles
    call_us: Doubles
    called_us: Doubles
    call: NDArray[np.object_]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.start_us)

    def chosen(self, which: Bools) -> HtaEvents:
        """Those of a mask."""
        columns = {
            name: getattr(self, name)[which] for name in self.__struct_fields__ if name != "rank"
        }
        return HtaEvents(rank=self.rank, **columns)


def kernel_type(name: str) -> int:
    """What HTA takes work of this name for."""
    if _COMMUNICATION.match(name):
        return COMMUNICATION
    if _MEMORY.match(name):
        return MEMORY
    return OTHER if _NO_KERNEL.match(name) else COMPUTATION


def copy_name(name: str) -> str:
    """The kind of copy, as HTA shortens it."""
    if name.startswith("Memset"):
        return "Memset"
    return name[: len("Memcpy DtoH")] if name.startswith("Memcpy") else "Memcpy Unknown"


def read_events(reader: Reader) -> list[HtaEvents]:
    """The events on GPUs of each rank that has any."""
    spans = reader.query(_SPANS)
    steps = {row["process"]: row for row in reader.query(_STEPS).to_pylist()}
    origins_ns = _origins_ns(reader)
    process = spans["process"].to_numpy()
    found = []
    for one in np.unique(process).tolist():
        first, behind = np.searchsorted(process, [one, one + 1])
        until_ns = None
        step = steps.get(one)
        if step is not None and step["names"] > 1:
            until_ns = step["last_ns"]
        events = _of_process(spans.slice(first, behind - first), origins_ns[one], until_ns)
        if len(events):
            found.append(events)
    return sorted(found, key=lambda events: events.rank)


def _origins_ns(reader: Reader) -> dict[int, int]:
    """By process what has to be added to a time to have that in the file of the trace."""
    readings = reader.query(_CLOCK)["at_ns"].to_pylist()
    at_ns = readings[0] if readings else 0
    found = {}
    for row in reader.query(_PROCESSES).to_pylist():
        try:
            about = decoded((row["about"] or "{}").encode(), dict)
        except ValueError:
            about = {}
        base_ns = about.get("baseTimeNanoseconds", 0)
        is_possible = isinstance(base_ns, int) and abs(base_ns) < _MOST_BASE_NS
        found[row["process"]] = at_ns - base_ns if is_possible else at_ns
    return found


def _of_process(spans: pa.Table, origin_ns: int, until_ns: int | None) -> HtaEvents:
    start_ns = spans["start_ns"].to_numpy()
    start_us = np.ceil(_doubles(start_ns, origin_ns))
    lasted_us = (spans["end_ns"].to_numpy() - start_ns) / 1000
    end_us = np.floor(_doubles(start_ns, origin_ns) + lasted_us)
    base_us = start_us.min()
    correlation = _filled(spans, "correlation")
    name = spans["name"].to_numpy(zero_copy_only=False)
    stream = _filled(spans, "stream")
    is_gpu = stream != _NONE
    is_call = spans["is_call"].to_numpy(zero_copy_only=False) & ~is_gpu & (correlation != _NONE)
    if until_ns is not None:
        is_call &= start_ns < until_ns
    call = _places(correlation, is_call)
    if until_ns is not None:
        is_gpu &= call != _NONE
    rows = np.flatnonzero(is_gpu)
    its_call = call[rows]
    has_call = its_call != _NONE
    types = {one: kernel_type(one) for one in set(name[rows].tolist())}
    return HtaEvents(
        rank=int(spans["rank"][0].as_py()),
        start_us=start_us[rows] - base_us,
        end_us=end_us[rows] - base_us,
        stream=stream[rows],
        kind=np.array([types[one] for one in name[rows].tolist()], np.int64),
        is_work=spans["is_work"].to_numpy(zero_copy_only=False)[rows],
        name=name[rows],
        rate=spans["rate"].to_numpy().astype(np.float64)[rows],
        call_us=np.where(has_call, start_us[its_call] - base_us, np.nan),
        called_us=np.where(has_call, end_us[its_call] - base_us, np.nan),
        call=np.where(has_call, name[its_call], ""),
    )


def _doubles(time_ns: Int64s, origin_ns: int) -> Doubles:
    """Times in the file as the doubles of microseconds that a reader of JSON makes of them."""
    whole_us, rest_ns = np.divmod(time_ns + origin_ns, 1000)
    found: Doubles = whole_us + rest_ns / 1000
    return found


def _filled(spans: pa.Table, name: str) -> Int64s:
    found: Int64s = spans[name].fill_null(_NONE).to_numpy()
    return found


def _places(correlation: Int64s, is_call: Bools) -> Int64s:
    """Of each span the row of the first call with its correlation."""
    calls = np.flatnonzero(is_call)
    known, first = np.unique(correlation[calls], return_index=True)
    if not len(known):
        return np.full(len(correlation), _NONE)
    place = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
    is_known = known[place] == correlation
    found: Int64s = np.where(is_known, calls[first[place]], _NONE)
    return found

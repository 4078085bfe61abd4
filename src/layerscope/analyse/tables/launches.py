"""Launches: what it takes to have a GPU begin something, by the call of CUDA or HIP that asks for
it.

name            the call: cudaLaunchKernel, cuLaunchKernel, hipLaunchKernel, cudaGraphLaunch, ...
count           calls that launched work
work            kernels, copies and memory sets that they launched: a graph launches many
cpu_ns          sum of the durations of the calls, on the host
avg_ns, max_ns  mean and longest of them
gpu_ns          sum of the durations of the work
latency_ns      launch latency, on average: from the end of the call to the start of its first work,
                less queueing
p99_latency_ns  99 % of the calls have not more
queueing_ns     queueing, on average: the part of that time in which the work before it on the
                stream had not ended. Large where the host runs ahead of the GPU, as it should
max_queueing_ns the longest
short           calls that took longer than the work that they launched
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import COUNT, NS, Result, ResultColumn

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("name", "string", "", "the call"),
    ResultColumn("count", "int64", COUNT, "calls that launched work"),
    ResultColumn("work", "int64", COUNT, "what they launched"),
    ResultColumn("cpu_ns", "int64", NS, "sum of their durations"),
    ResultColumn("avg_ns", "float64", NS, "mean duration"),
    ResultColumn("max_ns", "int64", NS, "longest"),
    ResultColumn("gpu_ns", "int64", NS, "durations of the work"),
    ResultColumn("latency_ns", "float64", NS, "mean launch latency"),
    ResultColumn("p99_latency_ns", "int64", NS, "99 % have not more"),
    ResultColumn("queueing_ns", "float64", NS, "mean time in the queue"),
    ResultColumn("max_queueing_ns", "int64", NS, "longest time in the queue"),
    ResultColumn("short", "int64", COUNT, "took longer than their work"),
)
TOP = 0
EMPTY = "No call that launched work on a GPU was recorded."
NEXT = "layerscope table queue"
_QUERY = """
    SELECT spans.name::VARCHAR AS name, count(*) AS count, sum(works) AS work,
           sum(cpu_ns) AS cpu_ns, avg(cpu_ns) AS avg_ns, max(cpu_ns) AS max_ns,
           sum(gpu_ns) AS gpu_ns, avg(latency_ns) AS latency_ns,
           quantile_disc(latency_ns, 0.99) AS p99_latency_ns,
           avg(queueing_ns) AS queueing_ns, max(queueing_ns) AS max_queueing_ns,
           count(*) FILTER (gpu_ns < cpu_ns) AS short
    FROM calls JOIN spans ON spans.span = calls.launch GROUP BY ALL"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each call."""
    import pyarrow as pa

    from layerscope.analyse.gpu.launching import Launches, launches
    from layerscope.analyse.gpu.work import read_work

    found = launches(read_work(reader))
    columns = {name: pa.array(getattr(found, name)) for name in Launches.__struct_fields__}
    connection = reader.connection()
    calls = connection.from_arrow(pa.table(columns))
    relation = calls.query("calls", _QUERY)
    return Result("launches", COLUMNS, relation, order="cpu_ns DESC, name")

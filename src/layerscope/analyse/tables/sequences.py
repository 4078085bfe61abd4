"""Sequences: what the calls of an operator run on GPUs, in order, the most frequent first.

operator  name of the operator
sequence  kernels, copies and memory sets of one call, in the order in which they began
length    how many these are
count     calls that ran exactly these
share     count as a fraction of all calls of the table
gpu_ns    sum of the durations of the work
avg_gpu_ns
          gpu_ns of a call
cpu_ns    sum of the durations of the calls on the host

Calls are the innermost operators that launched the work; with --under OPERATOR those of this one,
with all that ran in them. Of calls in each other the outermost one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
OPTIONS = ("under",)
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("operator", "string", "", "name of the operator"),
    ResultColumn("sequence", "string", "", "work of a call, in order", code=True),
    ResultColumn("length", "int64", COUNT, "how many these are"),
    ResultColumn("count", "int64", COUNT, "calls that ran these"),
    ResultColumn("share", "float64", SHARE, "of all calls"),
    ResultColumn("gpu_ns", "int64", NS, "sum of the durations of the work"),
    ResultColumn("avg_gpu_ns", "float64", NS, "gpu_ns of a call"),
    ResultColumn("cpu_ns", "int64", NS, "durations of the calls"),
)
TOP = 20
EMPTY = "No work of a GPU was recorded together with such operators."
NEXT = "layerscope table kernels --by operator"
_QUERY = """
    WITH calls AS (
        SELECT found.call, sum(work.dur_ns)::BIGINT AS gpu_ns, count(*) AS length,
               string_agg(work.name::VARCHAR, ' | ' ORDER BY work.start_ns, work.span) AS sequence
        FROM found JOIN spans AS work ON work.span = found.work GROUP BY found.call
    )
    SELECT operator.name::VARCHAR AS operator, calls.sequence, length, count(*) AS count,
           count(*) / sum(count(*)) OVER () AS share,
           sum(gpu_ns)::BIGINT AS gpu_ns, avg(gpu_ns) AS avg_gpu_ns,
           sum(operator.dur_ns)::BIGINT AS cpu_ns
    FROM calls JOIN spans AS operator ON operator.span = calls.call GROUP BY ALL"""


def build(reader: Reader, by: str | None = None, under: str | None = None) -> Result:
    """One row for each sequence of each operator; `under`: of this one alone."""
    from layerscope.analyse.gpu.sequences import works_of_calls

    works = works_of_calls(reader, under)
    found = reader.connection().from_arrow(works)
    relation = found.query("found", _QUERY)
    return Result("sequences", COLUMNS, relation, order="count DESC, gpu_ns DESC, sequence")

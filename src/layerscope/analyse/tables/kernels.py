"""Kernels: what ran on GPUs, by name, with copies and memory sets.

name        name of the kernel, of the copy or memory set; with --by what it is by
kind        compute, communication or copy
count       how many ran
total_ns    sum of their durations
share       total_ns as a fraction of that of all
avg_ns, min_ns, max_ns
            mean, shortest and longest
occupancy   achieved occupancy as the profiler estimates it, weighted by duration; a fraction of 1
registers   registers that each thread takes, the most of any

--by kind, stream and operator add up what is of one kind, on one stream, or launched by one
operator. --by overlap has the time in which each combination of kinds ran, over all GPUs: there is
no count of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.gpu import arguments
from layerscope.analyse.gpu.work import KINDS, WORK
from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn, of_rows

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("kind", "stream", "operator", "overlap")
REFUSED: dict[str, str] = {}
_NAME = ResultColumn("name", "string", "", "name, or what it is by", code=True)
_SUMS = (
    ResultColumn("count", "int64", COUNT, "how many ran"),
    ResultColumn("total_ns", "int64", NS, "sum of their durations"),
    ResultColumn("share", "float64", SHARE, "of the durations of all"),
    ResultColumn("avg_ns", "float64", NS, "mean duration"),
    ResultColumn("min_ns", "int64", NS, "shortest"),
    ResultColumn("max_ns", "int64", NS, "longest"),
)
_KIND = ResultColumn("kind", "string", "", "compute, communication or copy")
_ARGUMENTS = (
    ResultColumn("occupancy", "float64", SHARE, "estimated, weighted by duration"),
    ResultColumn("registers", "int64", COUNT, "of a thread, the most"),
)
COLUMNS = (_NAME, _KIND, *_SUMS, *_ARGUMENTS)
_OVERLAP = (_NAME, _SUMS[1], _SUMS[2])
TOP = 30
EMPTY = "No work of a GPU was recorded."
NEXT = "layerscope table kernels --by operator"
_KIND_NAME = f"list_extract({list(KINDS)!r}, work.kind + 1)"
_BY = {
    None: "work.name",
    "kind": _KIND_NAME,
    "stream": "concat_ws(' ', 'GPU ' || work.device, work.stream)",
    "operator": "coalesce(operator.name::VARCHAR, 'no operator known')",
}
_QUERY = f"""
    WITH operators AS (
        SELECT to_span AS span, min(from_span) AS operator
        FROM links WHERE kind = 'operator_gpu' GROUP BY to_span
    ),
    worked AS (
        SELECT {{name}} AS name, {_KIND_NAME} AS kind, end_ns - work.start_ns AS dur_ns,
               {arguments.OCCUPANCY_PERCENT} / 100 AS occupancy,
               {arguments.REGISTERS} AS registers
        FROM ({WORK}) AS work LEFT JOIN args USING (args)
             LEFT JOIN operators USING (span)
             LEFT JOIN spans AS operator ON operator.span = operators.operator
    )
    SELECT name, {{kind}}, count(*) AS count, sum(dur_ns)::BIGINT AS total_ns,
           sum(dur_ns) / nullif(sum(sum(dur_ns)) OVER (), 0) AS share,
           avg(dur_ns) AS avg_ns, min(dur_ns) AS min_ns, max(dur_ns) AS max_ns,
           sum(occupancy * dur_ns) / nullif(sum(dur_ns) FILTER (occupancy IS NOT NULL), 0)
             AS occupancy,
           max(registers) AS registers
    FROM worked GROUP BY ALL"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each name, or for each value of `by`; the longest sum first."""
    if by == "overlap":
        return _overlaps(reader)
    has_kind = by is None
    columns = COLUMNS if has_kind else (_NAME, *_SUMS, *_ARGUMENTS)
    query = _QUERY.format(name=_BY[by], kind="kind" if has_kind else "NULL AS kind")
    relation = reader.connection().sql(query)
    return Result("kernels", columns, relation, order="total_ns DESC, name")


def _overlaps(reader: Reader) -> Result:
    """The time of each combination of kinds, added up over the GPUs."""
    import numpy as np

    from layerscope.analyse.gpu.breakdown import combinations
    from layerscope.analyse.gpu.sweep import combined_ns
    from layerscope.analyse.gpu.work import devices_of, read_work

    sums = np.zeros(1 << len(KINDS), np.int64)
    recorded = read_work(reader)
    for _, _, work in devices_of(recorded):
        sums += combined_ns(work.start_ns, work.end_ns, work.kind, len(KINDS))
    busy_ns = int(sums[1:].sum())
    rows = []
    for name, total_ns in combinations(sums):
        share = total_ns / busy_ns
        rows.append((name, total_ns, share))
    return of_rows("kernels", _OVERLAP, rows)

"""Operators: every name that the framework's own recorder reported, with its calls and its time.

count        calls, those included that had not ended when the recording of their process did
total_ns     time from their start to their end, added up; a name that calls itself counts twice
self_ns      time in which none of their own operators ran; adds up to the busy time of the threads
self_share   self_ns as a fraction of the self_ns of all operators of the recording
total_share  total_ns as a fraction of the same sum; more than 1 is possible with several threads
avg_ns, min_ns, p50_ns, p99_ns, max_ns
             duration of one call, of those that ended; a percentile is the shortest duration that
             this many of the calls do not exceed, so it is one that really occurred

--by kind tells functions, backward functions, ranges, optimizer steps and loader waits apart,
--by module the modules of the network they belong to, --by thread the threads they ran on, --by line
the line of the program that opened a range or first called the module of an operator. Where a long
run was thinned, every number but min_ns and max_ns counts a kept call as often as its weight says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn
from layerscope.analyse.tables.modules import OUTSIDE
from layerscope.analyse.tables.threads import THREAD_NAMES

if TYPE_CHECKING:
    from layerscope.store.reader import Reader

BY = ("kind", "module", "line", "thread")
REFUSED = {
    "shape": "no layer recorded the shapes of the arguments, and this version cannot record shapes yet",
    "primitive": "no layer recorded oneDNN primitives, and this version cannot record primitives yet",
}
COLUMNS = (
    ResultColumn("name", "string", "", "name of the operator"),
    ResultColumn("count", "int64", COUNT, "calls"),
    ResultColumn("total_ns", "int64", NS, "time from start to end, added up"),
    ResultColumn("self_ns", "int64", NS, "time in which none of their own operators ran"),
    ResultColumn("self_share", "float64", SHARE, "self_ns as a fraction of the self_ns of all operators"),
    ResultColumn("total_share", "float64", SHARE, "total_ns as a fraction of the self_ns of all operators"),
    ResultColumn("avg_ns", "int64", NS, "mean duration of the calls that ended"),
    ResultColumn("min_ns", "int64", NS, "shortest call"),
    ResultColumn("p50_ns", "int64", NS, "half of the calls took no longer"),
    ResultColumn("p99_ns", "int64", NS, "99 % of the calls took no longer"),
    ResultColumn("max_ns", "int64", NS, "longest call"),
)
BY_COLUMNS = {
    "kind": ResultColumn("kind", "string", "", "function, backward, range, optimizer or loader"),
    "module": ResultColumn("module", "string", "", "path of the module it belongs to"),
    "line": ResultColumn("line", "string", "", "file and line that opened the range or called the module"),
    "thread": ResultColumn("thread", "string", "", "name and id of the thread"),
}
NO_LINE = "not known"
TOP = 0
EMPTY = "No operators were recorded: the program called none that layerscope could see."
NEXT = "layerscope table spans"

# A module's number and a track make a key; their texts may be the same.
_KEYS = {
    None: "name", "kind": "kind, name", "module": "module_key, name", "line": "line, name", "thread": "track, name",
}  # fmt: skip
_JOINS = {
    "module": f"""JOIN (SELECT module AS module_key, path AS module FROM modules
                        UNION ALL SELECT -1, '{OUTSIDE}') USING (module_key)""",
    "thread": f"LEFT JOIN ({THREAD_NAMES}) USING (track)",
}
# quantile_disc knows no weights; it is faster where there are none.
_PERCENTILES = """
    SELECT {keys}, quantile_disc(dur_ns, 0.5) AS p50_ns, quantile_disc(dur_ns, 0.99) AS p99_ns
    FROM calls WHERE NOT unfinished GROUP BY {keys}"""
_WEIGHTED_PERCENTILES = """
    SELECT {keys}, min(dur_ns) FILTER (upto >= 0.5 * whole) AS p50_ns,
           min(dur_ns) FILTER (upto >= 0.99 * whole) AS p99_ns
    FROM (
        SELECT {keys}, dur_ns, sum(weight) OVER (PARTITION BY {keys}) AS whole,
               sum(weight) OVER (PARTITION BY {keys} ORDER BY dur_ns ROWS UNBOUNDED PRECEDING) AS upto
        FROM calls WHERE NOT unfinished
    ) GROUP BY {keys}"""
_QUERY = """
    WITH calls AS (
        SELECT spans.* EXCLUDE (module, line), coalesce(module, -1) AS module_key,
               coalesce(spans.line, modules.line, '{unknown}') AS line
        FROM spans LEFT JOIN modules USING (module) WHERE layer = 'operators'
    ),
    percentiles AS ({percentiles}),
    sums AS (
        SELECT {keys}, sum(weight) AS count, sum(dur_ns * weight) AS total_ns, sum(self_ns * weight) AS self_ns,
               sum(dur_ns * weight) FILTER (NOT unfinished) / sum(weight) FILTER (NOT unfinished) AS mean_ns,
               min(dur_ns) FILTER (NOT unfinished) AS min_ns, max(dur_ns) FILTER (NOT unfinished) AS max_ns
        FROM calls GROUP BY {keys}
    )
    SELECT *, round(mean_ns) AS avg_ns,
           self_ns / greatest(sum(self_ns) OVER (), 1) AS self_share,
           total_ns / greatest(sum(self_ns) OVER (), 1) AS total_share
    FROM sums LEFT JOIN percentiles USING ({keys}) {join}"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each name, or for each pair of `by` and name, most self time first."""
    unfinished, weight = _extremes(reader)
    percentiles = _PERCENTILES if weight <= 1 else _WEIGHTED_PERCENTILES
    join = _JOINS.get(by or "", "")
    query = _QUERY.format(keys=_KEYS[by], join=join, unknown=NO_LINE, percentiles=percentiles.format(keys=_KEYS[by]))
    columns = (BY_COLUMNS[by], *COLUMNS) if by else COLUMNS
    return Result(
        "operators",
        columns,
        reader.connection().sql(query),
        order=f"self_ns DESC, {_KEYS[by]}",
        notes=_notes(unfinished, weight),
    )


def _extremes(reader: Reader) -> tuple[int, int]:
    """How many calls had not ended, and how many calls one of them stands for at most."""
    rows = reader.connection().sql(
        """SELECT count(*) FILTER (unfinished), coalesce(max(weight), 1) FROM spans WHERE layer = 'operators'"""
    )
    unfinished, weight = rows.fetchall()[0]
    return unfinished, weight


def _notes(unfinished: int, weight: int) -> tuple[str, ...]:
    notes = []
    if unfinished:
        calls = "1 call" if unfinished == 1 else f"{unfinished:,} calls"
        notes.append(
            f"{calls} had not ended when the recording of the process did: in count, total_ns and self_ns, "
            "left out of avg_ns, min_ns, p50_ns, p99_ns and max_ns."
        )
    if weight > 1:
        notes.append(f"The run was thinned: one kept call stands for up to {weight:,} calls.")
    return tuple(notes)

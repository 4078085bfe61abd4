"""Modules: the parts of the network, with the time of the operators that belong to them.

path         from the outermost module, which is called by its class; a second living one of the
             same class is #2. A module in parentheses is held by nobody: it was made where it was
             called
class        its class
calls        how often it was called
self_ns      time of the operators that ran in its calls and in no module inside, and of their
             backward pass
self_share   self_ns as a fraction of the time of all operators of the recording
total_ns     self_ns of the module and of all modules below it
total_share  total_ns as a fraction of the same sum
backward_ns  the part of total_ns in the backward phase of steps; none where the run has no steps
avg_ns       mean time of one call, Python included
line         file and line of its first call

The row "outside any module" is everything else: loading, the optimizer, functions of the loss. An
operator of the backward pass belongs to the module of the operator whose gradient it computes;
adding up a gradient belongs to the module whose gradient came just before. --by class adds up the
modules of one class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn
from layerscope.analyse.thinned import notes

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

OUTSIDE = "outside any module"
BY = ("class",)
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("path", "string", "", "path from the outermost module"),
    ResultColumn("class", "string", "", "class"),
    ResultColumn("calls", "int64", COUNT, "calls"),
    ResultColumn("self_ns", "int64", NS, "time of its own operators, forward and backward"),
    ResultColumn(
        "self_share", "float64", SHARE, "self_ns as a fraction of the time of all operators"
    ),
    ResultColumn("total_ns", "int64", NS, "self_ns of it and of all modules below it"),
    ResultColumn(
        "total_share", "float64", SHARE, "total_ns as a fraction of the time of all operators"
    ),
    ResultColumn("backward_ns", "int64", NS, "the part of total_ns in the backward phase of steps"),
    ResultColumn("avg_ns", "int64", NS, "mean time of one call"),
    ResultColumn("line", "string", "", "file and line of its first call"),
)
TOP = 0
EMPTY = (
    "No modules were recorded: the program called no module of a network that layerscope could see."
)
NEXT = "layerscope table operators --by module"

_QUERY = f"""
    WITH RECURSIVE times AS (
        SELECT module, sum(self_ns * weight) AS self_ns,
               sum(self_ns * weight) FILTER (phase = 'backward') AS backward_ns
        FROM spans WHERE layer = 'operators' GROUP BY module
    ),
    called AS (
        SELECT module, sum(weight) AS calls,
               sum(dur_ns * weight) FILTER (NOT unfinished) / sum(weight) FILTER (NOT unfinished)
                 AS mean_ns
        FROM spans WHERE layer = 'modules' GROUP BY module
    ),
    above(module, ancestor) AS (
        SELECT module, module FROM modules
        UNION ALL SELECT above.module, modules.parent FROM above
          JOIN modules ON modules.module = above.ancestor
        WHERE modules.parent IS NOT NULL
    ),
    below AS (
        SELECT above.ancestor AS module, sum(times.self_ns) AS total_ns, sum(times.backward_ns)
          AS backward_ns
        FROM above JOIN times USING (module) GROUP BY above.ancestor
    ),
    whole AS (SELECT greatest(coalesce(sum(self_ns), 0), 1) AS ns FROM times),
    stepped AS (SELECT count(*) > 0 AS yes FROM steps),
    listed AS (
        SELECT path, class, calls, coalesce(times.self_ns, 0) AS self_ns, coalesce(total_ns, 0)
          AS total_ns,
               below.backward_ns AS backward_ns, mean_ns, line
        FROM modules LEFT JOIN called USING (module) LEFT JOIN times USING (module) LEFT
          JOIN below USING (module)
        UNION ALL
        SELECT '{OUTSIDE}', NULL, NULL, self_ns, self_ns, backward_ns, NULL, NULL
        FROM times WHERE module IS NULL AND (SELECT count(*) FROM modules) > 0
    )
    SELECT path, class, calls, self_ns, self_ns / ns AS self_share, total_ns, total_ns / ns
      AS total_share,
           CASE WHEN yes THEN coalesce(backward_ns, 0) END AS backward_ns, round(mean_ns)
             AS avg_ns, line
    FROM listed, whole, stepped"""
_BY_CLASS = f"""
    SELECT class, sum(calls) AS calls, sum(self_ns) AS self_ns, sum(self_share) AS self_share,
           round(sum(avg_ns * calls) / sum(calls)) AS avg_ns
    FROM (SELECT coalesce(class, '{OUTSIDE}') AS class, calls, self_ns, self_share, avg_ns
    FROM ({_QUERY}))
    GROUP BY class"""
_CLASS_COLUMNS = ("class", "calls", "self_ns", "self_share", "avg_ns")


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each module, or each class of them; most time of its own first."""
    columns: tuple[ResultColumn, ...] = COLUMNS
    query, name = _QUERY, "path"
    if by is not None:
        columns = tuple(column for column in COLUMNS if column.name in _CLASS_COLUMNS)
        query, name = _BY_CLASS, "class"
    relation = reader.connection().sql(query)
    order = f"self_ns DESC, {name}"
    return Result("modules", columns, relation, order=order, notes=notes(reader))

"""Spans: single calls, the slowest first.

name, kind   what ran: a function, a backward function, a range, an optimizer step, a loader wait;
             the call of a module; a task, frame or event; the execution or creation of a primitive,
             or a share of one
thread       name and id of the thread it ran on
step         the step of the training loop it started in; none outside the steps
start_ns     when it started, on the run's clock; printed in seconds since the run began
dur_ns       time from its start to its end
self_ns      time in which nothing of the same layer ran inside: for an operator no other operator,
             for a module no other module
total_share  dur_ns as a fraction of the self_ns of all spans of its layer
self_share   self_ns as a fraction of the same sum
module       the innermost module whose call it ran in, or whose backward pass
line         file and line that opened a range, or first called the module

A span that had not ended when the recording of its process did lasts until that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import NS, SHARE, Result, ResultColumn
from layerscope.analyse.tables.threads import THREAD_NAMES

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("name", "string", "", "name"),
    ResultColumn(
        "kind",
        "string",
        "",
        "function, backward, range, optimizer, loader; module; task, frame, event; execute, "
        "create, share",
    ),
    ResultColumn("thread", "string", "", "name and id of the thread"),
    ResultColumn("step", "int32", "", "the step it started in"),
    ResultColumn("start_ns", "int64", NS, "when it started", instant=True),
    ResultColumn("dur_ns", "int64", NS, "duration"),
    ResultColumn("self_ns", "int64", NS, "time in which nothing of the same layer ran inside"),
    ResultColumn(
        "total_share", "float64", SHARE, "dur_ns as a fraction of the self_ns of its layer"
    ),
    ResultColumn(
        "self_share", "float64", SHARE, "self_ns as a fraction of the self_ns of its layer"
    ),
    ResultColumn("module", "string", "", "path of the module it belongs to"),
    ResultColumn("line", "string", "", "file and line that opened it"),
)
TOP = 15
EMPTY = "No spans were recorded: the program ran nothing that layerscope could see."
NEXT = "layerscope table steps"

_QUERY = f"""
    SELECT span, spans.name, kind, thread, step, start_ns, dur_ns, self_ns,
           dur_ns / whole_ns AS total_share, self_ns / whole_ns AS self_share, path AS module,
           CASE WHEN layer = 'modules' THEN modules.line ELSE spans.line END AS line
    FROM spans LEFT JOIN ({THREAD_NAMES}) USING (track) LEFT JOIN modules USING (module)
         JOIN (SELECT layer, greatest(sum(self_ns * weight), 1)::DOUBLE AS whole_ns FROM spans
         GROUP BY layer)
         USING (layer)"""
_TOTALS = """
    SELECT coalesce(sum(weight), 0)::BIGINT, coalesce(sum(self_ns * weight), 0)::BIGINT,
      count(DISTINCT layer),
           count(*) FILTER (unfinished), coalesce(max(weight), 1) FROM spans"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each span, longest first."""
    calls, self_ns, layers, unfinished, weight = reader.connection().sql(_TOTALS).fetchall()[0]
    totals: dict[str, int | float | str] = {"name": f"all {calls:,} spans"}
    if layers == 1:  # the time of an operator lies in that of its module too
        totals |= {"self_ns": self_ns, "self_share": 1.0}
    return Result(
        "spans",
        COLUMNS,
        reader.connection().sql(_QUERY),
        order="dur_ns DESC, start_ns, span",
        totals=totals if self_ns else {},
        notes=_notes(unfinished, weight),
    )


def _notes(unfinished: int, weight: int) -> tuple[str, ...]:
    notes = []
    if unfinished:
        spans = f"{unfinished:,} spans"
        if unfinished == 1:
            spans = "1 span"
        notes.append(f"{spans} had not ended when the recording of the process did.")
    if weight > 1:
        notes.append(f"The run was thinned: one kept span stands for up to {weight:,}.")
    return tuple(notes)

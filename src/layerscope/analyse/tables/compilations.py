"""Compilations: functions that a framework compiled while the program ran, and why more than once.

function  what was compiled
line      its line, where the framework tells it
count     how often it was compiled
total_ns  what that took together
max_ns    the longest
first_ns  when the first one began
last_ns   when the last one began: late in the run it has not settled
arguments types of the arguments, of the last one
reason    why it was compiled again: in what its arguments differed from those of the compilation
          before that is most like it, or what the framework says; of several the last one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import COUNT, NS, Result, ResultColumn

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("function", "string", "", "what was compiled", code=True),
    ResultColumn("line", "string", "", "its line"),
    ResultColumn("count", "int64", COUNT, "compilations"),
    ResultColumn("total_ns", "int64", NS, "what they took"),
    ResultColumn("max_ns", "int64", NS, "the longest"),
    ResultColumn("first_ns", "int64", NS, "when the first one began", instant=True),
    ResultColumn("last_ns", "int64", NS, "when the last one began", instant=True),
    ResultColumn("arguments", "string", "", "types of the arguments, of the last one"),
    ResultColumn("reason", "string", "", "why it was compiled again"),
)
TOP = 20
EMPTY = "No compilation of a function was recorded."
NEXT = "layerscope findings"
# What numbers the compilations of a function is one.
_QUERY = """
    WITH compiled AS (
        SELECT regexp_replace(name, '^compile ', '') AS function, start_ns, dur_ns,
               json_extract_string(json, '$.line') AS line,
               json_extract_string(json, '$.arguments') AS arguments,
               json_extract_string(json, '$.reason') AS reason
        FROM spans JOIN args USING (args)
        WHERE kind = 'task' AND json_extract_string(json, '$.number') IS NOT NULL
    )
    SELECT function, arg_max(line, start_ns) AS line, count(*) AS count,
           sum(dur_ns)::BIGINT AS total_ns, max(dur_ns) AS max_ns,
           min(start_ns) AS first_ns, max(start_ns) AS last_ns,
           arg_max(arguments, start_ns) AS arguments, arg_max(reason, start_ns) AS reason
    FROM compiled GROUP BY function"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each function; most time first."""
    relation = reader.connection().query(_QUERY)
    return Result("compilations", COLUMNS, relation, order="total_ns DESC, function")

"""Counters: what was read from the system about each process while it ran, and what the program counted.

process           key of the process
domain            process for what was read from the system, else the domain of the program's own counter
name              what was read
readings          how often
first, last       the first and the last reading, in `unit`
min, max          the smallest and the largest
rate_per_s        growth a second between the first and the last reading; only for counters that
                  count from the start of their process (CPU time, page faults, switches): a rate of cpu_ns
                  of 2,000,000,000 is two CPUs that were always busy
unit              unit of first, last, min, max: ns, bytes or count
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import BY_ROW, BY_ROW_PER_S, COUNT, Result, ResultColumn
from layerscope.model.layers import PROCESS_COUNTERS

if TYPE_CHECKING:
    from layerscope.store.reader import Reader

# They count from the start of their process, so their difference means something and their level does not.
CUMULATIVE = (
    "cpu_ns", "user_ns", "system_ns", "faults_minor", "faults_major", "delay_ns", "switches_voluntary",
    "switches_forced",
)  # fmt: skip

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("domain", "string", "", "process, or a domain of the program's own"),
    ResultColumn("name", "string", "", "what was read"),
    ResultColumn("readings", "int64", COUNT, "how often it was read"),
    ResultColumn("first", "int64", BY_ROW, "the first reading"),
    ResultColumn("last", "int64", BY_ROW, "the last reading"),
    ResultColumn("min", "int64", BY_ROW, "the smallest reading"),
    ResultColumn("max", "int64", BY_ROW, "the largest reading"),
    ResultColumn("rate_per_s", "float64", BY_ROW_PER_S, "growth a second, of counters that only grow"),
    ResultColumn("unit", "string", "", "unit of first, last, min and max"),
)
TOP = 0
EMPTY = "No counters were recorded."
NEXT = "layerscope table processes"

_QUERY = f"""
    SELECT process, track, tracks.name AS domain, counters.name, any_value(unit) AS unit, count(*) AS readings,
           arg_min(value, at_ns) AS first, arg_max(value, at_ns) AS last, min(value) AS min, max(value) AS max,
           CASE WHEN tracks.name = '{PROCESS_COUNTERS}' AND counters.name IN {CUMULATIVE}
                THEN (arg_max(value, at_ns) - arg_min(value, at_ns)) * 1e9 / nullif(max(at_ns) - min(at_ns), 0)
           END AS rate_per_s
    FROM counters JOIN tracks USING (track)
    GROUP BY process, track, tracks.name, counters.name"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each process and counter."""
    return Result("counters", COLUMNS, reader.connection().sql(_QUERY), order="process, track, name")

"""Threads: what each thread of the program did.

process   key of the process
tid       id of the thread; ids are reused by the system, rows are not
name      name of the thread
spans     operators, ranges and waits that started on it
busy_ns   time in which at least one of them was open: where outermost spans overlap, it counts once
first_ns  start of its first span, on the run's clock; printed in seconds since the run began
last_ns   end of its last span
cpu_ns    CPU time of the thread. This and what follows is known where stacks were recorded; of a
          thread that ended before it was looked at, within about a second, nothing but this
delay_ns  time in which it could run and had no CPU
switches  how often it left a CPU: to wait, or because others wanted it
faults    its page faults, those included that read from disk. layerscope table counters --by thread
          has more. In files of perf cpu_ns and faults are those of the samples
lost      records of this thread that were lost; none where nobody could count them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import COUNT, NS, Result, ResultColumn
from layerscope.analyse.thinned import notes

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# What a thread is called in every table: its name and its id, and its track where ids were reused.
THREAD_NAMES = """
    SELECT track, CASE WHEN count(*) OVER (PARTITION BY plain) > 1 THEN plain || ' #' || track
      ELSE plain END AS thread
    FROM (SELECT track, concat_ws(' ', nullif(name, ''), coalesce(tid::VARCHAR, '#' || track))
      AS plain
          FROM tracks WHERE kind = 'thread')"""

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("tid", "int32", "", "id of the thread"),
    ResultColumn("name", "string", "", "name of the thread"),
    ResultColumn("spans", "int64", COUNT, "spans that started on it"),
    ResultColumn("busy_ns", "int64", NS, "time in which at least one of them was open"),
    ResultColumn("first_ns", "int64", NS, "start of its first span", instant=True),
    ResultColumn("last_ns", "int64", NS, "end of its last span", instant=True),
    ResultColumn("cpu_ns", "int64", NS, "CPU time of the thread"),
    ResultColumn("delay_ns", "int64", NS, "time in which it could run and had no CPU"),
    ResultColumn("switches", "int64", COUNT, "how often it left a CPU"),
    ResultColumn("faults", "int64", COUNT, "page faults"),
    ResultColumn("lost", "int64", COUNT, "records that were lost"),
)
TOP = 0
EMPTY = "No threads were recorded."
NEXT = "layerscope table operators --by thread"

_QUERY = """
    WITH worked AS (
        SELECT track, sum(weight) AS spans, min(start_ns) AS first_ns, max(start_ns + dur_ns)
          AS last_ns
        FROM spans GROUP BY track
    ),
    -- Outermost spans overlap where they cross, or where the parent of one of them was lost.
    outermost AS (
        SELECT track, weight, start_ns, start_ns + dur_ns AS end_ns, max(start_ns + dur_ns) OVER (
            PARTITION BY track ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
              AS covered_ns
        FROM spans WHERE parent IS NULL
    ),
    busy AS (
        SELECT track, sum(greatest(end_ns - greatest(start_ns, coalesce(covered_ns, start_ns)),
          0) * weight) AS busy_ns
        FROM outermost GROUP BY track
    ),
    sampled AS (
        SELECT track, sum(weight_ns) FILTER (WHERE samples.kind = 'cpu') AS cpu_ns,
               sum(count) FILTER (WHERE samples.kind = 'fault') AS faults
        FROM samples GROUP BY track
    ),
    losses AS (
        SELECT track, CASE WHEN bool_or(lost IS NULL) THEN NULL ELSE sum(lost) END AS lost, true
          AS has_lost
        FROM gaps WHERE track IS NOT NULL GROUP BY track
    )
    SELECT track, process, tid, name, coalesce(spans, 0) AS spans, coalesce(busy_ns, 0) AS busy_ns,
      first_ns, last_ns,
           coalesce(tracks.cpu_ns, sampled.cpu_ns) AS cpu_ns, delay_ns,
           switches_voluntary + switches_forced AS switches,
           coalesce(faults_minor + faults_major, sampled.faults) AS faults,
           CASE WHEN has_lost THEN lost ELSE 0 END AS lost
    FROM tracks LEFT JOIN worked USING (track) LEFT JOIN busy USING (track) LEFT
      JOIN losses USING (track) LEFT JOIN sampled USING (track)
    WHERE kind = 'thread'"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each thread, the busiest first."""
    return Result(
        "threads",
        COLUMNS,
        reader.connection().sql(_QUERY),
        order="busy_ns DESC, track",
        notes=notes(reader),
    )

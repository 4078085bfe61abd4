"""Counters: what the system says about each process, and what the program counted.

process           key of the process
domain            process for what was read about it, cgroup for what was read about its control
                  group, machine for all programs together, malloc for what the C library's heap
                  holds, else the domain of the program's own counter
name              what was read
readings          how often
first, last       the first and the last reading, in `unit`
min, max          the smallest and the largest
rate_per_s        growth a second between the first and the last reading; only for counters that
                  only grow (CPU time, page faults, switches, bytes): a rate of cpu_ns of
                  2,000,000,000 is two CPUs that were always busy
unit              unit of first, last, min, max: ns, bytes or count

--by process, --by thread and --by step have one row for each of these, with what `perf stat` tells
of a program:

tid, name         of a thread
dur_ns            how long the step took, or the thread lived since it was first seen
cpu_ns            CPU time. Of a process the last reading; of a step from samples: wrong by less
                  than a period of the sampling (10 ms) for each thread that was busy when it began
                  or ended
cpus_used         cpu_ns divided by the duration: 2 is two CPUs that were always busy
delay_ns          time in which threads could run and had no CPU, added up
switches, forced  how often threads left a CPU, and how often because others wanted it
migrations        how often they came onto another CPU than before
faults, major     page faults, and those of them that read from disk
peak_bytes        the most memory the process held
read_bytes,       what it read from and wrote to storage. What was read before is in memory:
write_bytes       rchar_bytes and wchar_bytes among the counters count that too. Those of children
                  count once they have been waited for

None is what nobody told. delay_ns, switches and migrations are known where stacks are recorded,
about once a second, and of threads that live for less than that only cpu_ns. What is read from the
system is known of a step that is at least as long as the time between two readings, and follows a
straight line between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analyse.by_step import UNKNOWN, cpu_ns_within, grown_within, system_readings
from layerscope.analyse.result import (
    BY_ROW,
    BY_ROW_PER_S,
    BYTES,
    COUNT,
    NS,
    RATIO,
    Result,
    ResultColumn,
)
from layerscope.model.distinct import distinct
from layerscope.model.layers import CUMULATIVE, PROCESS_COUNTERS, SYSTEM_COUNTERS

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("process", "thread", "step")
REFUSED: dict[str, str] = {}
_PROCESS = ResultColumn("process", "int32", "", "key of the process")
COLUMNS = (
    _PROCESS,
    ResultColumn("domain", "string", "", "process, cgroup, machine, or one of the program's own"),
    ResultColumn("name", "string", "", "what was read"),
    ResultColumn("readings", "int64", COUNT, "how often it was read"),
    ResultColumn("first", "int64", BY_ROW, "the first reading"),
    ResultColumn("last", "int64", BY_ROW, "the last reading"),
    ResultColumn("min", "int64", BY_ROW, "the smallest reading"),
    ResultColumn("max", "int64", BY_ROW, "the largest reading"),
    ResultColumn(
        "rate_per_s", "float64", BY_ROW_PER_S, "growth a second, of counters that only grow"
    ),
    ResultColumn("unit", "string", "", "unit of first, last, min and max"),
)
_DURATION = ResultColumn("dur_ns", "int64", NS, "how long it took or lived")
_COUNTED = (
    ResultColumn("cpu_ns", "int64", NS, "CPU time"),
    ResultColumn("cpus_used", "float64", RATIO, "cpu_ns divided by the duration"),
    ResultColumn("delay_ns", "int64", NS, "time in which threads could run and had no CPU"),
    ResultColumn("switches", "int64", COUNT, "how often threads left a CPU"),
    ResultColumn("forced", "int64", COUNT, "how often because others wanted it"),
    ResultColumn("migrations", "int64", COUNT, "how often they came onto another CPU"),
    ResultColumn("faults", "int64", COUNT, "page faults"),
)
_MAJOR = ResultColumn("major", "int64", COUNT, "page faults that read from disk")
_STORAGE = (
    ResultColumn("read_bytes", "int64", BYTES, "read from storage"),
    ResultColumn("write_bytes", "int64", BYTES, "written to storage"),
)
_COLUMNS_BY = {
    "process": (
        _PROCESS,
        *_COUNTED,
        _MAJOR,
        ResultColumn("peak_bytes", "int64", BYTES, "most memory held"),
        *_STORAGE,
    ),
    "thread": (
        _PROCESS,
        ResultColumn("tid", "int32", "", "id of the thread"),
        ResultColumn("name", "string", "", "name of the thread"),
        _DURATION,
        *_COUNTED,
        _MAJOR,
    ),
    "step": (
        _PROCESS,
        ResultColumn("step", "int32", "", "number of the step in its process"),
        _DURATION,
        *_COUNTED,
        *_STORAGE,
    ),
}
TOP = 0
EMPTY = "No counters were recorded."
NEXT = "layerscope table counters --by thread"

_QUERY = f"""
    SELECT process, track, tracks.name AS domain, counters.name, any_value(unit) AS unit, count(*)
      AS readings,
           arg_min(value, at_ns) AS first, arg_max(value, at_ns) AS last, min(value) AS min,
             max(value) AS max,
           CASE WHEN tracks.name IN {SYSTEM_COUNTERS} AND counters.name IN {CUMULATIVE}
                THEN (arg_max(value, at_ns) - arg_min(value,
                  at_ns)) * 1e9 / nullif(max(at_ns) - min(at_ns), 0)
           END AS rate_per_s
    FROM counters JOIN tracks USING (track)
    GROUP BY process, track, tracks.name, counters.name"""

_BY_PROCESS = f"""
    WITH last AS (
        SELECT process, counters.name, max(value) AS value, max(at_ns) AS at_ns
        FROM counters JOIN tracks USING (track) WHERE tracks.name = '{PROCESS_COUNTERS}'
        GROUP BY ALL
    ),
    pivoted AS (
        PIVOT last ON name IN ('cpu_ns', 'delay_ns', 'switches_voluntary', 'switches_forced',
          'migrations',
            'faults_minor', 'faults_major', 'rss_peak_bytes', 'rss_bytes', 'storage_read_bytes',
            'storage_written_bytes') USING max(value) GROUP BY process
    ),
    lived AS (SELECT process, max(at_ns) AS seen_ns FROM last WHERE name = 'cpu_ns'
    GROUP BY process)
    SELECT process, cpu_ns, cpu_ns / nullif(coalesce(end_ns, seen_ns) - start_ns, 0) AS cpus_used,
      delay_ns,
           switches_voluntary + switches_forced AS switches, switches_forced AS forced, migrations,
           faults_minor + faults_major AS faults, faults_major AS major,
           coalesce(rss_peak_bytes, rss_bytes) AS peak_bytes, storage_read_bytes AS read_bytes,
           storage_written_bytes AS write_bytes
    FROM pivoted JOIN processes USING (process) JOIN lived USING (process)"""

_BY_THREAD = """
    SELECT process, track, tid, tracks.name, coalesce(tracks.end_ns, processes.end_ns)
               - CASE WHEN tid = pid THEN processes.start_ns ELSE tracks.start_ns END AS dur_ns,
           cpu_ns, cpu_ns / nullif(dur_ns, 0) AS cpus_used, delay_ns,
           switches_voluntary + switches_forced AS switches, switches_forced AS forced, migrations,
           faults_minor + faults_major AS faults, faults_major AS major
    FROM tracks JOIN processes USING (process) WHERE kind = 'thread' AND cpu_ns IS NOT NULL"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each process and counter, or for each process, thread or step."""
    connection = reader.connection()
    if by is None:
        relation = connection.sql(_QUERY)
        return Result("counters", COLUMNS, relation, order="process, track, name")
    columns = _COLUMNS_BY[by]
    if by == "step":
        connection.register("counted_by_step", _by_step(reader))
        relation = connection.sql("SELECT * FROM counted_by_step")
        return Result("counters", columns, relation, order="start_ns, process, step")
    query = _BY_THREAD
    order = "cpu_ns DESC, track"
    if by == "process":
        query = _BY_PROCESS
        order = "process"
    relation = connection.sql(query)
    return Result("counters", columns, relation, order=order)


def _by_step(reader: Reader) -> Any:
    """One row for each step."""
    import pyarrow as pa

    steps = reader.arrays("steps", ["process", "step", "start_ns", "dur_ns"])
    tracks = reader.arrays("tracks", ["track", "process", "name"])
    start_ns, end_ns = steps["start_ns"], steps["start_ns"] + steps["dur_ns"]
    readings = system_readings(reader, tracks, [])

    def grown(name: str) -> np.ndarray:
        found = np.full(len(start_ns), UNKNOWN, np.int64)
        for process in distinct(steps["process"]).tolist():
            of_process = np.flatnonzero(steps["process"] == process)
            counter = readings.get((process, name))
            starts, ends = start_ns[of_process], end_ns[of_process]
            found[of_process] = grown_within(counter, starts, ends)
        return found

    def both(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        is_unknown = (one < 0) | (other < 0)
        total = one + other
        return np.where(is_unknown, UNKNOWN, total)

    sampled = cpu_ns_within(reader, tracks, steps["process"], start_ns, end_ns)
    cpu_ns = np.where(sampled >= 0, sampled, grown("cpu_ns"))
    forced = grown("switches_forced")
    columns = steps | {
        "cpu_ns": cpu_ns,
        "delay_ns": grown("delay_ns"),
        "switches": both(grown("switches_voluntary"), forced),
        "forced": forced,
        "migrations": grown("migrations"),
        "faults": both(grown("faults_minor"), grown("faults_major")),
        "read_bytes": grown("storage_read_bytes"),
        "write_bytes": grown("storage_written_bytes"),
    }
    arrow = {name: pa.array(values, mask=values < 0) for name, values in columns.items()}
    used = np.where(cpu_ns < 0, 0, cpu_ns) / np.maximum(steps["dur_ns"], 1)
    return pa.table({**arrow, "cpus_used": pa.array(used, mask=cpu_ns < 0)})

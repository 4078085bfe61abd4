"""Processes: every process that was recorded, and the resources it used.

process         key of the process in this recording
pid, ppid       its process id and that of its parent
rank            its rank in a distributed job; none where it had none
role            what it is there for: the program itself, a rank, a loader worker, a worker (of
                multiprocessing, or forked), a child (another program, started by one of these), or
                what it is to the ranks of its job (a server, the scheduler)
start_ns        when it started, on the run's clock; printed in seconds since the run began
dur_ns          how long it lived; none while its end is unknown
exit            its exit status, or minus the signal that ended it; none where it goes on, or the
                kernel does not tell others than its parent (before Linux 6.15, of one that its
                parent waits for)
threads, spans  its threads that ran operators, and the spans they recorded
cpu_ns          CPU time it used, in the program and in the kernel, at the last reading
system_ns       the part of it in the kernel
rss_peak_bytes  the most memory it held
faults_minor    page faults served from memory
faults_major    page faults that waited for a disk
lost            records that were lost; none where nobody could count them
argv            its command line

None of cpu_ns to faults_major where nobody read its counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import BYTES, COUNT, NS, Result, ResultColumn
from layerscope.analyse.thinned import notes
from layerscope.model.layers import PROCESS_COUNTERS

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("pid", "int32", "", "process id"),
    ResultColumn("ppid", "int32", "", "process id of its parent"),
    ResultColumn("rank", "int32", "", "rank in a distributed job"),
    ResultColumn("role", "string", "", "what it is there for"),
    ResultColumn("start_ns", "int64", NS, "when it started", instant=True),
    ResultColumn("dur_ns", "int64", NS, "how long it lived"),
    ResultColumn("exit", "int32", "", "exit status, or minus the signal"),
    ResultColumn("threads", "int64", COUNT, "threads that ran operators"),
    ResultColumn("spans", "int64", COUNT, "spans they recorded"),
    ResultColumn("cpu_ns", "int64", NS, "CPU time"),
    ResultColumn("system_ns", "int64", NS, "CPU time in the kernel"),
    ResultColumn("rss_peak_bytes", "int64", BYTES, "the most memory it held"),
    ResultColumn("faults_minor", "int64", COUNT, "page faults served from memory"),
    ResultColumn("faults_major", "int64", COUNT, "page faults that waited for a disk"),
    ResultColumn("lost", "int64", COUNT, "records that were lost"),
    ResultColumn("argv", "string", "", "command line"),
)
TOP = 0
EMPTY = "No processes were recorded."
NEXT = "layerscope table counters"

_QUERY = f"""
    WITH worked AS (
        SELECT process, count(DISTINCT track) AS threads, sum(weight) AS spans
        FROM spans JOIN tracks USING (track) GROUP BY process
    ),
    used AS (
        SELECT process,
               max(value) FILTER (counters.name = 'cpu_ns') AS cpu_ns,
               max(value) FILTER (counters.name = 'system_ns') AS system_ns,
               max(value) FILTER (counters.name IN ('rss_bytes', 'rss_peak_bytes'))
                 AS rss_peak_bytes,
               max(value) FILTER (counters.name = 'faults_minor') AS faults_minor,
               max(value) FILTER (counters.name = 'faults_major') AS faults_major
        FROM counters JOIN tracks USING (track) WHERE tracks.name = '{PROCESS_COUNTERS}'
        GROUP BY process
    ),
    losses AS (
        SELECT coalesce(gaps.process, tracks.process) AS process, true AS has_lost,
               CASE WHEN bool_or(lost IS NULL) THEN NULL ELSE sum(lost) END AS lost
        FROM gaps LEFT JOIN tracks USING (track) WHERE reason NOT IN ('no_sampler', 'no_segment')
        GROUP BY ALL
    ),
    -- A worker that lives for milliseconds ends before the name of its thread is read.
    named AS (
        SELECT DISTINCT process, name LIKE 'pt_data_worker%' AS loads FROM tracks
        WHERE kind = 'thread' AND name <> ''
    ),
    loading AS (
        SELECT DISTINCT process FROM spans JOIN tracks USING (track)
        WHERE spans.kind = 'loader' AND spans.name LIKE '%MultiProcessing%'
    ),
    -- Process ids are used again: of several,
    -- the parent is the one that started last before the child.
    parents AS (
        SELECT child.process AS child, arg_max(parent.process, parent.start_ns) AS process
        FROM processes AS child JOIN processes AS parent ON parent.pid = child.ppid
          AND parent.host = child.host
            AND parent.process <> child.process AND parent.start_ns <= child.start_ns
        GROUP BY child.process
    ),
    roles AS (
        SELECT child.process, CASE
            WHEN child.role IS NOT NULL THEN child.role
            WHEN child.process IN (SELECT process FROM named WHERE loads) THEN 'loader worker'
            WHEN child.argv = parent.argv AND child.process NOT IN (SELECT process FROM named)
                AND parent.process IN (FROM loading) THEN 'loader worker'
            WHEN contains(child.argv, 'from multiprocessing.') AND parent.process IS NULL
              THEN 'worker'
            WHEN child.rank IS NOT NULL AND parent.rank IS DISTINCT FROM child.rank THEN 'rank'
            WHEN contains(child.argv, 'from multiprocessing.') OR child.argv = parent.argv
              THEN 'worker'
            WHEN parent.process IS NOT NULL THEN 'child'
            ELSE 'program' END AS role
        FROM processes AS child LEFT JOIN parents ON parents.child = child.process
        LEFT JOIN processes AS parent ON parent.process = parents.process
    )
    SELECT processes.* EXCLUDE (role), roles.role,
           processes.end_ns - processes.start_ns AS dur_ns, coalesce(threads, 0) AS threads,
           coalesce(spans, 0) AS spans, cpu_ns, system_ns, rss_peak_bytes, faults_minor,
             faults_major,
           CASE WHEN has_lost THEN lost ELSE 0 END AS lost
    FROM processes
    LEFT JOIN worked USING (process) LEFT JOIN used USING (process) LEFT JOIN losses USING (process)
    LEFT JOIN roles USING (process)"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each process, in the order they started."""
    return Result(
        "processes",
        COLUMNS,
        reader.connection().sql(_QUERY),
        order="start_ns, process",
        notes=notes(reader),
    )

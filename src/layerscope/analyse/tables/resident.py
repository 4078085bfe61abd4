"""Resident memory: what the memory of each process is made of when it holds most.

process    key of the process
at_ns      when its resident memory was read at its largest, about once a second
part       what it is:
           tensors           live blocks of the framework's allocator
           arrays            live arrays of NumPy of 1 KiB and more
           other blocks      what else the C library has handed out (malloc): buffers of libraries,
                             workspaces
           free blocks       what it keeps for later
           Python objects    what Python has taken for objects of up to 512 bytes; larger ones are
                             other blocks
           other anonymous   the rest that is of no file: data of libraries that has been written
                             to, stacks of threads, what libraries map themselves
           files             libraries, their code and data, and files that the program maps
           shared            shared memory, such as of loader workers, and the rings of the
                             recording
           not resident      what of the blocks has never been touched, as a negative number
bytes      how much; the parts of a process add up to its resident memory
share      of the resident memory

Tensors and arrays are exact, but: blocks from before the recording, or from outside of its windows
(--steps, --after), are other blocks; so are those that a forked process has from its parent; what
lost its release, or was left out of a large table, is not among them. `problems` says which of this
is true. What malloc has is read a few times a second: of that reading come the other blocks, and
the free ones less what tensors and arrays have taken since, or given back. Without glibc's malloc
(jemalloc, tcmalloc) other and free blocks are part of other anonymous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import BYTES, NS, SHARE, Result, ResultColumn
from layerscope.model.layers import HEAP_COUNTERS, PROCESS_COUNTERS
from layerscope.model.memory import CPU, NUMPY, TENSOR

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("at_ns", "int64", NS, "when its resident memory was largest", instant=True),
    ResultColumn("part", "string", "", "what it is"),
    ResultColumn("bytes", "int64", BYTES, "how much"),
    ResultColumn("share", "float64", SHARE, "of the resident memory"),
)
TOP = 0
EMPTY = "No resident memory was recorded."
NEXT = "layerscope table peak"
# What it is called in the table, and the order.
PARTS = (
    "tensors",
    "arrays",
    "other blocks",
    "free blocks",
    "Python objects",
    "other anonymous",
    "files",
    "shared",
    "not resident",
)
_ORDER = " ".join(f"WHEN '{part}' THEN {place}" for place, part in enumerate(PARTS))

FOREVER = 2**63 - 1


def _live(at_ns: str) -> str:
    return f"blocks.at_ns <= {at_ns} AND end_ns > {at_ns}"


_QUERY = f"""
    WITH resident AS (
        SELECT process, at_ns,
            max(value) FILTER (counters.name = 'rss_anonymous_bytes') AS anonymous,
            max(value) FILTER (counters.name = 'rss_file_bytes') AS files,
            max(value) FILTER (counters.name = 'rss_shared_bytes') AS shared
        FROM counters JOIN tracks USING (track)
        WHERE tracks.name = '{PROCESS_COUNTERS}' AND tracks.kind = 'counter'
            AND counters.name IN ('rss_anonymous_bytes', 'rss_file_bytes', 'rss_shared_bytes')
        GROUP BY ALL
    ),
    largest AS (
        SELECT process, unnest(arg_max(resident, anonymous + files + shared)) FROM resident
        GROUP BY process
    ),
    moment AS (SELECT DISTINCT process, at_ns, anonymous, files, shared FROM largest),
    heap_readings AS (
        SELECT moment.process, counters.at_ns AS heap_ns,
            max(value) FILTER (counters.name = 'in_use_bytes') AS in_use,
            max(value) FILTER (counters.name = 'free_bytes') AS free,
            max(value) FILTER (counters.name = 'python_bytes') AS python
        FROM moment JOIN tracks ON tracks.process = moment.process
            JOIN counters ON counters.track = tracks.track
        WHERE tracks.name = '{HEAP_COUNTERS}' AND tracks.kind = 'counter' GROUP BY ALL
    ),
    heap AS (
        SELECT process, arg_min(heap_ns, far) AS heap_ns, arg_min(in_use, far) AS in_use,
            arg_min(free, far) AS free, arg_min(python, far) AS python
        FROM (
            SELECT heap_readings.*, abs(heap_ns - moment.at_ns) AS far
            FROM heap_readings JOIN moment USING (process)
        )
        GROUP BY process
    ),
    blocks AS (
        SELECT tracks.process, bytes, allocator, allocations.at_ns,
            coalesce(allocations.at_ns + dur_ns, {FOREVER}) AS end_ns
        FROM allocations JOIN tracks USING (track)
        WHERE allocations.device = '{CPU}' AND NOT is_lost
    ),
    live AS (
        SELECT moment.process,
            sum(bytes) FILTER (allocator = '{TENSOR}' AND {_live("moment.at_ns")}) AS tensors,
            sum(bytes) FILTER (allocator = '{NUMPY}' AND {_live("moment.at_ns")}) AS arrays,
            sum(bytes) FILTER ({_live("heap_ns")}) AS of_heap
        FROM moment LEFT JOIN heap USING (process) JOIN blocks ON blocks.process = moment.process
        GROUP BY moment.process
    ),
    told AS (
        SELECT process, at_ns, anonymous, files, shared, coalesce(tensors, 0) AS tensors,
            coalesce(arrays, 0) AS arrays, coalesce(of_heap, 0) AS of_heap,
            coalesce(in_use, 0) AS in_use, coalesce(free, 0) AS free, coalesce(python, 0) AS python
        FROM moment LEFT JOIN live USING (process) LEFT JOIN heap USING (process)
    ),
    known AS (
        SELECT *, greatest(in_use - of_heap, 0) AS other,
            greatest(free - (tensors + arrays - of_heap), 0) AS free_now
        FROM told
    ),
    parts AS (
        UNPIVOT (
            SELECT process, at_ns, tensors, arrays, other AS "other blocks",
                free_now AS "free blocks", python AS "Python objects", files, shared,
                greatest(rest, 0) AS "other anonymous", least(rest, 0) AS "not resident"
            FROM (
                SELECT *, anonymous - tensors - arrays - other - free_now - python AS rest
                FROM known
            )
        ) ON COLUMNS(* EXCLUDE (process, at_ns)) INTO NAME part VALUE bytes
    )
    SELECT process, at_ns, part, bytes::BIGINT AS bytes,
        (bytes / sum(bytes) OVER (PARTITION BY process))::DOUBLE AS share,
        CASE part {_ORDER} END AS place
    FROM parts WHERE bytes <> 0"""


def build(reader: Reader, by: str | None = None) -> Result:
    """A row for each part of each process."""
    connection = reader.connection()
    relation = connection.sql(_QUERY)
    return Result("resident", COLUMNS, relation, order="process, place")

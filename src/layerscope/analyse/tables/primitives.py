"""Primitives: calls of oneDNN and MKL below the operators, with their time and speed.

name           kind of primitive: convolution, matmul, reorder, ...; of MKL gemm, fft, lapack or
               other
kind           execute; create: the library prepares one, or finds it in its cache
implementation the code that ran, as the library calls it; MKL for calls of MKL
count          calls, those included that had not ended when the recording of their process did
total_ns       time from start to end on the thread that asked, added up
share          its part of the time of all executions and creations of the recording; what lies
               inside another primitive counts as the inner one, so the shares add up to 1
operator_share total_ns of those that an operator asked for, as a fraction of the durations of these
operators
gflop_per_s    floating-point operations a second of the executions whose problem has a formula
gb_per_s       bytes a second of the executions whose sizes are known: each source and destination
               counts once, whatever the caches do
threads        the most threads that took part in one of them, as far as seen; none in logs, which
               do not say
others_busy    how many threads beside the one that asked worked on it, as a mean over its time:
               0.98 of one other thread is good, 0.02 means that it waited or did not take part;
               none where no share was seen
cache_hits     creations of what the library had already; none where it does not tell
cache_misses   creations of something new
avg_ns, min_ns, p50_ns, p99_ns, max_ns
               duration of one, of those that ended

The parts of an execution on other threads, its shares, are no rows: they are in threads and
others_busy. --by kind leaves the implementation out and --by implementation the kind of primitive;
--by isa groups by the instruction set in the implementation's name, --by shape by the problem, --by
dtype by the types, --by format by the memory layouts (of a reorder: from -> to), --by operator by
the operator that asked, --by module by its module, --by thread by the thread that asked. Where a
long run was thinned, every number but min_ns and max_ns counts a kept primitive as often as its
weight says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse import thinned
from layerscope.analyse.percentiles import note_of_open, percentiles
from layerscope.analyse.result import (
    COUNT,
    GBYTE_PER_S,
    GFLOP_PER_S,
    NS,
    RATIO,
    SHARE,
    Result,
    ResultColumn,
)
from layerscope.analyse.tables.modules import OUTSIDE
from layerscope.analyse.tables.threads import THREAD_NAMES

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

NOT_KNOWN = "not known"
NO_OPERATOR = "no operator"
NO_ISA = "none in its name"

BY = ("kind", "implementation", "isa", "shape", "dtype", "format", "operator", "module", "thread")
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("name", "string", "", "kind of primitive"),
    ResultColumn("kind", "string", "", "execute or create"),
    ResultColumn("implementation", "string", "", "the code that ran"),
    ResultColumn("count", "int64", COUNT, "calls"),
    ResultColumn("total_ns", "int64", NS, "time from start to end, added up"),
    ResultColumn("share", "float64", SHARE, "part of the time of all primitives"),
    ResultColumn(
        "operator_share",
        "float64",
        SHARE,
        "total_ns as a fraction of the operators that asked for it",
    ),
    ResultColumn("gflop_per_s", "float64", GFLOP_PER_S, "floating-point operations a second"),
    ResultColumn("gb_per_s", "float64", GBYTE_PER_S, "bytes of sources and destinations a second"),
    ResultColumn("threads", "int32", COUNT, "the most threads that took part in one"),
    ResultColumn(
        "others_busy", "float64", RATIO, "other threads that worked on it, as a mean over its time"
    ),
    ResultColumn("avg_ns", "int64", NS, "mean duration of those that ended"),
    ResultColumn("min_ns", "int64", NS, "shortest"),
    ResultColumn("p50_ns", "int64", NS, "half of them took no longer"),
    ResultColumn("p99_ns", "int64", NS, "99 % of them took no longer"),
    ResultColumn("max_ns", "int64", NS, "longest"),
    ResultColumn("cache_hits", "int64", COUNT, "creations of what the library had already"),
    ResultColumn("cache_misses", "int64", COUNT, "creations of something new"),
)
BY_COLUMNS = {
    "isa": ResultColumn("isa", "string", "", "instruction set in the implementation's name"),
    "shape": ResultColumn("shape", "string", "", "the problem, as the library writes it"),
    "dtype": ResultColumn("dtype", "string", "", "types of source, weights and destination"),
    "format": ResultColumn("format", "string", "", "memory layouts; of a reorder from -> to"),
    "operator": ResultColumn("operator", "string", "", "the operator that asked for it"),
    "module": ResultColumn("module", "string", "", "path of the module it belongs to"),
    "thread": ResultColumn("thread", "string", "", "name and id of the thread that asked"),
}
TOP = 0
EMPTY = (
    "No primitives were recorded: the program asked nothing of oneDNN or MKL that layerscope "
    "could see."
)
NEXT = "layerscope table primitives --by shape"

# What oneDNN calls instruction sets in the names of its implementations.
_ISA = (
    r"(avx10[a-z0-9_]*|avx512[a-z0-9_]*|avx2[a-z0-9_]*|avx|sse[0-9]+|amx[a-z0-9_]*|"
    r"sve[a-z0-9_]*|asimd|vsx)"
)
# The columns of COLUMNS that one --by leaves out.
_WITHOUT = {
    "kind": ("implementation",),
    "implementation": ("name",),
    "isa": ("name", "implementation"),
}
# What a group is made by, beside the columns of COLUMNS; a module's number and a track make a key,
# not their texts.
_KEYS = {"module": "module_key", "thread": "track"}
_GROUPS = {
    "isa": f"coalesce(nullif(regexp_extract(implementation, '{_ISA}'), ''), '{NO_ISA}')",
    "shape": f"coalesce(problem, '{NOT_KNOWN}')",
    "dtype": f"coalesce(dtype, '{NOT_KNOWN}')",
    "format": f"coalesce(nullif(formats, ''), '{NOT_KNOWN}')",
    "operator": f"coalesce(asking.name, '{NO_OPERATOR}')",
    "module": "coalesce(spans.module, asking.module, -1)",
    "thread": "spans.track",
}
_JOINS = {
    "module": f"""JOIN (SELECT module AS module_key, path AS module FROM modules
                        UNION ALL SELECT -1, '{OUTSIDE}') USING (module_key)""",
    "thread": f"LEFT JOIN ({THREAD_NAMES}) USING (track)",
}
# The name of an execution that says what ran, also in `operators --by primitive`.
IMPLEMENTATION = (
    "CASE library WHEN 'MKL' THEN 'MKL' "
    f"ELSE coalesce(primitives.implementation, '{NOT_KNOWN}') END"
)
_QUERY = """
    WITH asking AS (
        SELECT span AS operator, name, module, dur_ns * weight AS operator_ns
        FROM spans WHERE layer = 'operators' AND span IN (SELECT operator FROM primitives)
    ),
    helped AS (
        SELECT share_of AS span, sum(dur_ns) AS others_ns
        FROM primitives JOIN spans USING (span) WHERE share_of IS NOT NULL GROUP BY share_of
    ),
    calls AS MATERIALIZED (
        SELECT primitive_kind AS name, spans.kind AS kind, {implementation}
          AS implementation {column}, dur_ns, self_ns,
               weight, unfinished, primitives.operator AS asked_by, operator_ns, others_ns,
                 cache_hit,
               CASE WHEN track IN (SELECT track FROM tracks WHERE tid IS NOT NULL) THEN threads END
                 AS threads,
               CASE WHEN spans.kind = 'execute' AND NOT unfinished THEN flop END AS flop,
               CASE WHEN spans.kind = 'execute' AND NOT unfinished THEN bytes END AS bytes
        FROM primitives JOIN spans USING (span) LEFT JOIN asking USING (operator) LEFT
          JOIN helped USING (span)
        WHERE layer = 'primitives' AND spans.kind <> 'share'
    ),
    percentiles AS ({percentiles}),
    asked AS (
        SELECT {keys}, sum(operator_ns) AS asked_ns
        FROM (SELECT DISTINCT {keys}, asked_by, operator_ns FROM calls
        WHERE operator_ns IS NOT NULL) GROUP BY {keys}
    ),
    sums AS (
        SELECT {keys}, sum(weight) AS count, sum(dur_ns * weight) AS total_ns,
          sum(self_ns * weight) AS self_ns,
               sum(dur_ns * weight) FILTER (operator_ns IS NOT NULL) AS below_ns,
               sum(dur_ns * weight) FILTER (NOT unfinished) / sum(weight) FILTER (NOT unfinished)
                 AS mean_ns,
               min(dur_ns) FILTER (NOT unfinished) AS min_ns, max(dur_ns) FILTER (NOT unfinished)
                 AS max_ns,
               sum(flop::DOUBLE * weight) / nullif(sum(dur_ns * weight) FILTER (flop IS NOT NULL),
                 0) AS gflop_per_s,
               sum(bytes::DOUBLE * weight)
               / nullif(sum(dur_ns * weight) FILTER (bytes IS NOT NULL), 0) AS gb_per_s,
               max(threads) AS threads, sum(others_ns * weight) / nullif(sum(dur_ns * weight), 0)
                 AS others_busy,
               sum(weight) FILTER (cache_hit) AS hits, sum(weight) FILTER (NOT cache_hit) AS misses,
               count(cache_hit) > 0 AS is_told
        FROM calls GROUP BY {keys}
    )
    SELECT *, round(mean_ns) AS avg_ns, self_ns / greatest(sum(self_ns) OVER (), 1) AS share,
           below_ns / greatest(asked_ns, 1) AS operator_share,
           CASE WHEN is_told THEN coalesce(hits, 0) END AS cache_hits,
           CASE WHEN is_told THEN coalesce(misses, 0) END AS cache_misses
    FROM sums LEFT JOIN percentiles USING ({keys}) LEFT JOIN asked USING ({keys}) {join}"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each primitive and implementation, or for each of them and `by`; most time
    first.
    """
    left_out = _WITHOUT.get(by or "", ())
    columns = tuple(column for column in COLUMNS if column.name not in left_out)
    own = [name for name in ("name", "kind", "implementation") if name not in left_out]
    column = ""
    if by in _GROUPS:
        columns = (BY_COLUMNS[by], *columns)
        key = _KEYS.get(by, by)
        own.insert(0, key)
        column = f", {_GROUPS[by]} AS {key}"
    keys = ", ".join(own)
    unfinished, weight = _extremes(reader)
    query = _QUERY.format(
        implementation=IMPLEMENTATION,
        column=column,
        keys=keys,
        join=_JOINS.get(by or "", ""),
        percentiles=percentiles(keys, weight),
    )
    return Result(
        "primitives",
        columns,
        reader.connection().sql(query),
        order=f"total_ns DESC, {keys}",
        notes=(
            *note_of_open("primitive", unfinished),
            *(thinned.notes(reader) if weight > 1 else ()),
        ),
    )


def _extremes(reader: Reader) -> tuple[int, int]:
    """How many primitives had not ended, and how many one of them stands for at most."""
    rows = reader.connection().sql(
        """SELECT count(*) FILTER (unfinished), coalesce(max(weight), 1) FROM spans
           WHERE layer = 'primitives' AND kind <> 'share'"""
    )
    unfinished, weight = rows.fetchall()[0]
    return unfinished, weight

"""Operators: every name that the framework's own recorder reported, with its calls and its time.

count        calls, those included that had not ended when the recording of their process did
total_ns     time from their start to their end, added up; a name that calls itself counts twice
self_ns      time in which none of their own operators ran; adds up to the busy time of the threads
self_share   self_ns as a fraction of the self_ns of all operators of the recording
total_share  total_ns as a fraction of the same sum; more than 1 is possible with several threads
gpu_ns       in traces of GPUs: sum of the durations of the kernels and copies that it, or an
             operator in it, launched
line         where stacks were recorded: the line of --by line with the most of its self_ns
avg_ns, min_ns, p50_ns, p99_ns, max_ns
             duration of one call, of those that ended; a percentile is the shortest duration that
             this many of the calls do not exceed, so it is one that really occurred

--by kind tells functions, backward functions, ranges, optimizer steps and loader waits apart, --by
module the modules of the network they belong to, --by thread the threads they ran on, --by range
the innermost range of the program in which they were called or submitted (of a backward function:
in which its operator was), --by line the line of the program that they were called from, --by shape
the dtypes and shapes of the tensors they were called with (of a recording made with --shapes), --by
primitive what they asked of oneDNN and MKL, with a column of its own: own_ns is self_ns without the
primitives that the operator asked for on its own thread. How long each primitive took is in the
table primitives. Where a long run was
thinned, every number but min_ns and max_ns counts a kept call as often as its weight says.

The line of a range is the one that opened it. Of an operator it is the one that its samples in the
same module were called from; where there are none, the one that first called the module, and
outside of modules the one of its samples elsewhere. Where the samples name several lines, count,
total_ns and self_ns of --by line are divided among them as the CPU time of the samples is, and a
line has the durations of all of these calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from layerscope.analyse import thinned
from layerscope.analyse.bulks import bulk_note
from layerscope.analyse.enclosing_ranges import enclosing_ranges
from layerscope.analyse.gpu.of_operators import gpu_times
from layerscope.analyse.percentiles import note_of_open, percentiles
from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn
from layerscope.analyse.shapes import NO_TENSORS, shape_texts
from layerscope.analyse.stacks.innermost import ANYWHERE, lines_of_operators
from layerscope.analyse.stacks.innermost import OUTSIDE as OUTSIDE_MODULES
from layerscope.analyse.tables.modules import OUTSIDE
from layerscope.analyse.tables.primitives import EMPTY as NONE_RECORDED
from layerscope.analyse.tables.primitives import IMPLEMENTATION
from layerscope.analyse.tables.threads import THREAD_NAMES
from layerscope.model.errors import UsageError

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("kind", "module", "line", "range", "thread", "shape", "primitive")
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("name", "string", "", "name of the operator"),
    ResultColumn("count", "int64", COUNT, "calls"),
    ResultColumn("total_ns", "int64", NS, "time from start to end, added up"),
    ResultColumn("self_ns", "int64", NS, "time in which none of their own operators ran"),
    ResultColumn(
        "self_share", "float64", SHARE, "self_ns as a fraction of the self_ns of all operators"
    ),
    ResultColumn(
        "total_share", "float64", SHARE, "total_ns as a fraction of the self_ns of all operators"
    ),
    ResultColumn("avg_ns", "int64", NS, "mean duration of the calls that ended"),
    ResultColumn("min_ns", "int64", NS, "shortest call"),
    ResultColumn("p50_ns", "int64", NS, "half of the calls took no longer"),
    ResultColumn("p99_ns", "int64", NS, "99 % of the calls took no longer"),
    ResultColumn("max_ns", "int64", NS, "longest call"),
)
BY_COLUMNS = {
    "kind": ResultColumn("kind", "string", "", "function, backward, range, optimizer or loader"),
    "module": ResultColumn("module", "string", "", "path of the module it belongs to"),
    "line": ResultColumn("line", "string", "", "file and line that it was called from"),
    "range": ResultColumn("range", "string", "", "innermost range of the program around it"),
    "thread": ResultColumn("thread", "string", "", "name and id of the thread"),
    "shape": ResultColumn(
        "shape", "string", "", "dtypes and shapes of the tensors it was called with"
    ),
    "primitive": ResultColumn("primitive", "string", "", "the primitives that it asked for"),
}
OWN = ResultColumn("own_ns", "int64", NS, "self_ns without the primitives that it asked for")
GPU = ResultColumn("gpu_ns", "int64", NS, "durations of the work on GPUs that it launched")
LINE = ResultColumn("line", "string", "", "file and line that it was mostly called from")
NO_LINE = "not known"
NO_PRIMITIVE = "none"
NO_RANGE = "none"
TOP = 0
EMPTY = "No operators were recorded: the program called none that layerscope could see."
NEXT = "layerscope table spans"

# A module's number and a track make a key; their texts may be the same.
_KEYS = {
    None: "name",
    "kind": "kind, name",
    "module": "module_key, name",
    "line": "line, name",
    "range": "range, name",
    "thread": "track, name",
    "shape": "shape, name",
    "primitive": "asked, name",
}
_JOINS = {
    "module": f"""JOIN (SELECT module AS module_key, path AS module FROM modules
                        UNION ALL SELECT -1, '{OUTSIDE}') USING (module_key)""",
    "thread": f"LEFT JOIN ({THREAD_NAMES}) USING (track)",
    "primitive": """LEFT JOIN (
            SELECT asked, string_agg(what, ', ' ORDER BY code) AS known
            FROM (SELECT DISTINCT asked FROM sums)
              JOIN bits ON asked & (1::UHUGEINT << code) <> 0::UHUGEINT
            GROUP BY asked) USING (asked)""",
}
# The lines that calls come from, by name and module, and which part of them. `sampled_lines` are
# those of `lines_of_operators`.
_LINES = f"""pairs AS MATERIALIZED (
        SELECT name, coalesce(module, -1) AS module_key, line AS opened_by,
          sum(self_ns * weight) AS spent_ns
        FROM spans WHERE layer = 'operators' GROUP BY ALL
    ),
    called AS (
        SELECT DISTINCT name, module_key, coalesce(path, '{OUTSIDE_MODULES}') AS path,
          modules.line AS module_line
        FROM pairs LEFT JOIN modules ON module = module_key
    ),
    candidates AS (
        SELECT name, module_key, sampled.line, part, 1 AS choice
        FROM called JOIN sampled_lines sampled ON sampled.called = name AND
          sampled.path = called.path
        UNION ALL SELECT name, module_key, module_line, 1, 2 FROM called
        WHERE module_line IS NOT NULL
        UNION ALL SELECT name, module_key, sampled.line, part, 3
        FROM called JOIN sampled_lines sampled ON sampled.called = name AND
          sampled.path = '{ANYWHERE}'
    ),
    known_lines AS MATERIALIZED (
        SELECT name, module_key, line AS known_line, part FROM candidates
        QUALIFY choice = min(choice) OVER (PARTITION BY name, module_key)
    )"""
_OF_CALL = """LEFT JOIN known_lines known ON spans.line IS NULL AND known.name = spans.name
            AND known.module_key = coalesce(spans.module, -1)"""
_MOST_LINES = f"""WITH {_LINES}
    SELECT name AS called, arg_max(line, (line_ns, line)) AS mostly FROM (
        SELECT name, coalesce(opened_by, known_line) AS line,
          sum(spent_ns * CASE WHEN opened_by IS NULL THEN coalesce(part, 1) ELSE 1 END) AS line_ns
        FROM pairs LEFT JOIN known_lines USING (name, module_key) GROUP BY ALL
    ) WHERE line IS NOT NULL GROUP BY name"""
_MOST_LINES_OF_CALL, _LEAST_PART = 8, 0.02
_RANGES = """LEFT JOIN enclosing_ranges USING (span)
            LEFT JOIN (SELECT span AS within, name AS range FROM spans) USING (within)"""
_SHAPES = "LEFT JOIN shape_texts USING (args)"
_DIVIDED_NOTE = (
    "Some operators were called from several lines: count, total_ns and self_ns of each are "
    "estimates, in proportion to the CPU time of its samples."
)
# Of calls whose weight is not a whole number.
_DIVIDED = 2
# What an operator asked for is a set of bits, one for each kind and implementation; beyond so many
# they share the last.
_MOST_BITS = 127
# What lies within another primitive is part of that one: self times add up to the time of the
# outermost ones.
_BELOW = f"""whats AS MATERIALIZED (
        SELECT least(row_number() OVER (ORDER BY what) - 1, {_MOST_BITS})::UHUGEINT AS code, what
        FROM (SELECT DISTINCT primitive_kind || ' ' || {IMPLEMENTATION} AS what FROM primitives)
    ),
    bits AS (
        SELECT code, CASE count(*) WHEN 1 THEN any_value(what) ELSE 'others' END AS what FROM whats
        GROUP BY code
    ),
    below AS MATERIALIZED (
        SELECT primitives.operator AS span, track, sum(self_ns) AS below_ns,
               bit_or(CASE WHEN kind = 'execute' THEN 1::UHUGEINT << code ELSE 0 END) AS asked
        FROM primitives JOIN spans USING (span)
          JOIN whats ON what = primitive_kind || ' ' || {IMPLEMENTATION}
        WHERE layer = 'primitives' AND primitives.operator IS NOT NULL
        GROUP BY primitives.operator, track
    ),"""
# Only what ran on the operator's own thread is a part of its time.
_PRIMITIVES = "LEFT JOIN below USING (span, track)"
# What the exact sums of a thinned run tell apart, and what is said of them and of the others.
_EXACT = (None, "kind", "module")
_EXACT_NOTE = (
    "The run was thinned: p50_ns and p99_ns are within 0.5 %, everything else here is exact."
)
_LOSSY_NOTE = (
    "The run was thinned: p50_ns and p99_ns are within 0.5 %. What was lost is in count and "
    "total_ns, outside any module, and not in self_ns."
)
_QUERY = """
    WITH {before} calls AS (
        SELECT spans.* EXCLUDE (module, line, weight), coalesce(spans.module, -1) AS module_key,
               {line} AS line, {weight} AS weight {column}
        FROM spans {texts} WHERE layer = 'operators'
    ),
    percentiles AS ({percentiles}),
    sums AS (
        SELECT {keys}, sum(weight) AS count, sum(dur_ns * weight) AS total_ns,
          sum(self_ns * weight) AS self_ns,
               sum(dur_ns * weight) FILTER (NOT unfinished) / sum(weight) FILTER (NOT unfinished)
                 AS mean_ns,
               min(dur_ns) FILTER (NOT unfinished) AS min_ns, max(dur_ns) FILTER (NOT unfinished)
                 AS max_ns {sums}
        FROM calls GROUP BY {keys}
    )
    SELECT * REPLACE (round(count) AS count, round(total_ns) AS total_ns, round(self_ns) AS self_ns)
           {words}, round(mean_ns) AS avg_ns,
           self_ns / greatest(sum(self_ns) OVER (), 1) AS self_share,
           total_ns / greatest(sum(self_ns) OVER (), 1) AS total_share
    FROM sums LEFT JOIN percentiles USING ({keys}) {join}"""


_WITH_GPU = {
    None: """SELECT sums.*, coalesce(gpu.gpu_ns, 0) AS gpu_ns FROM ({query}) sums LEFT JOIN
        (SELECT called, sum(gpu_ns)::BIGINT AS gpu_ns FROM gpu_times GROUP BY called) gpu
        ON gpu.called = name""",
    "kind": """SELECT sums.*, coalesce(gpu_ns, 0) AS gpu_ns FROM ({query}) sums
        LEFT JOIN gpu_times ON called = name AND called_kind = kind""",
}


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each name, or for each pair of `by` and name, most self time first."""
    unfinished, weight = _extremes(reader)
    bulks = bulk_note(reader)
    notes = (*note_of_open("call", unfinished), *([bulks] if bulks else []))
    if by in _EXACT and thinned.is_thinned(reader):
        query = thinned.QUERY.format(keys=_KEYS[by], join=_JOINS.get(by or "", ""))
        lost = (
            reader.connection()
            .sql("SELECT 1 FROM gaps WHERE reason = 'max_size' LIMIT 1")
            .fetchall()
        )
        return _result(reader, by, query, (*notes, _LOSSY_NOTE if lost else _EXACT_NOTE))
    column = ""
    sums = ""
    texts = ""
    before = ""
    line = "spans.line"
    weight_of_call = "spans.weight"
    if by == "line":
        _register_lines(reader)
        before = f"{_LINES},"
        texts = _OF_CALL
        line = f"coalesce(spans.line, known_line, '{NO_LINE}')"
        weight = _DIVIDED
        weight_of_call = "spans.weight * coalesce(part, 1)"
        notes = (*notes, *_note_of_divided(reader))
    elif by == "range":
        column = f", coalesce(range, '{NO_RANGE}') AS range"
        texts = _RANGES
        reader.connection().register("enclosing_ranges", enclosing_ranges(reader))
    elif by == "shape":
        column = f", coalesce(shape, '{NO_TENSORS}') AS shape"
        texts = _SHAPES
        reader.connection().register("shape_texts", shape_texts(reader))
    elif by == "primitive":
        _check_primitives(reader)
        column = ", coalesce(asked, 0) AS asked, self_ns - coalesce(below_ns, 0) AS own_ns"
        sums = ", sum(own_ns * weight) AS own_ns"
        texts = _PRIMITIVES
        before = _BELOW
    query = _QUERY.format(
        keys=_KEYS[by],
        join=_JOINS.get(by or "", ""),
        line=line,
        weight=weight_of_call,
        percentiles=percentiles(_KEYS[by], weight),
        column=column,
        sums=sums,
        texts=texts,
        before=before,
        words=f", coalesce(known, '{NO_PRIMITIVE}') AS primitive" if by == "primitive" else "",
    )
    return _result(reader, by, query, (*notes, *thinned.notes(reader)))


def _result(reader: Reader, by: str | None, query: str, notes: tuple[str, ...]) -> Result:
    columns = list(COLUMNS)
    names = [column.name for column in columns]
    if by == "primitive":
        columns.insert(names.index("self_ns") + 1, OWN)
    if by in (None, "kind") and _register_lines(reader):
        query = (
            f"SELECT sums.*, mostly AS line FROM ({query}) sums LEFT JOIN ({_MOST_LINES}) ON "
            "called = name"
        )
        columns.insert(names.index("avg_ns"), LINE)
    if by in (None, "kind") and _register_gpu_times(reader):
        query = _WITH_GPU[by].format(query=query)
        columns.insert(names.index("self_ns") + 1, GPU)
    if by:
        columns.insert(0, BY_COLUMNS[by])
    relation = reader.connection().sql(query)
    order = f"self_ns DESC, {_KEYS[by]}"
    return Result("operators", tuple(columns), relation, order=order, notes=notes)


def _register_gpu_times(reader: Reader) -> bool:
    """Make `gpu_times` known to questions; whether there are any."""
    found = gpu_times(reader)
    if found is None:
        return False
    reader.connection().register("gpu_times", found)
    return True


def _register_lines(reader: Reader) -> bool:
    """Make `sampled_lines` known to questions; whether there are any."""
    rows = []
    for (operator, path), times_ns in lines_of_operators(reader).items():
        whole_ns = sum(times_ns.values())
        parts = _parts(times_ns, whole_ns)
        rows += [(operator, path, line, part) for line, part in parts.items()]
    names = ["called", "path", "line", "part"]
    types = [pa.string(), pa.string(), pa.string(), pa.float64()]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
    reader.connection().register("sampled_lines", pa.table(arrays, names=names))
    return bool(rows)


def _note_of_divided(reader: Reader) -> tuple[str, ...]:
    rows = reader.query("SELECT count(*) AS divided FROM sampled_lines WHERE part < 1").to_pylist()
    return (_DIVIDED_NOTE,) if rows[0]["divided"] else ()


def _parts(times_ns: dict[str, int], whole_ns: int) -> dict[str, float]:
    """Which part of the time each line has. Those with next to none are left out: each line costs
    a row for each call.
    """
    heaviest = sorted(times_ns, key=lambda line: (-times_ns[line], line))[:_MOST_LINES_OF_CALL]
    chosen = [line for line in heaviest if times_ns[line] >= _LEAST_PART * whole_ns]
    chosen_ns = sum(times_ns[line] for line in chosen)
    return {line: times_ns[line] / chosen_ns if chosen_ns else 1.0 for line in chosen}


def _extremes(reader: Reader) -> tuple[int, int]:
    """How many calls had not ended, and how many calls one of them stands for at most."""
    rows = reader.connection().sql(
        """SELECT count(*) FILTER (unfinished), coalesce(max(weight), 1) FROM spans
        WHERE layer = 'operators'"""
    )
    unfinished, weight = rows.fetchall()[0]
    return unfinished, weight


def _check_primitives(reader: Reader) -> None:
    """UsageError with the reason when there are none."""
    if reader.has("primitives"):
        return
    rows = reader.query(
        "SELECT what, remedy FROM problems WHERE layer = 'primitives' LIMIT 1"
    ).to_pylist()
    why = (
        f"{rows[0]['what']}. {rows[0]['remedy'][:1].upper()}{rows[0]['remedy'][1:]}"
        if rows
        else NONE_RECORDED
    )
    raise UsageError(f"operators cannot be shown by primitive: {why}")

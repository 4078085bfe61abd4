"""Waits: what threads waited for, off the CPU: for what, where, how often and how long.

state        gil, lock, barrier (of OpenMP), pool (for work), sleep, yield, pipe, socket, file,
             event, page_fault, preempted (it could have run, but no CPU was free), child (for a
             process), join (for a thread to end, or to do its work), backward (for the backward
             pass, which another thread runs), gpu, stopped (by a signal or a debugger), other,
             unknown (most waits of less than 10 ms: nobody saw what for)
thread       name and id of the thread
function     that of the line; without Python the innermost native function that is none of the C
             and C++ libraries
line         innermost line of Python of the program's own, of a library if there is none
symbol       the native function that it waited in; none of one that could have run, of which
             function and line are those of its sample before
count        number of waits that were sampled
total_ns     how long they took, added up
share        total_ns as a fraction of all waits that are not idle; none for those that are
avg_ns       mean of those that were measured from end to end
max_ns       the longest of these
exact_share  the part of total_ns that was measured from end to end. The rest is from waits that
             were seen by chance and stand for others
waker        the thread that ended most of total_ns, as far as that is known; none where a timer or
             a device did. Known in recordings of root, or of users with CAP_PERFMON
waker_line   innermost line of Python, or else native function, of the waker's nearest sample, up to
             20 ms away

Idle waits, in which a thread of a pool has no work, are one row "idle"; --by idle shows them as the
others. --by state, thread, function, line, symbol, module, operator, phase, step and waker make one
row for each of these and each state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from layerscope.analyse.columns import dictionary_of, has_name
from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn
from layerscope.analyse.stacks import sample_reader
from layerscope.analyse.stacks.by_frame import BY_COLUMNS, NO_OPERATOR, UNKNOWN, thread_names
from layerscope.analyse.stacks.frames import FrameTable, StackFrame
from layerscope.analyse.stacks.innermost import Innermost, innermost, labelled, named
from layerscope.analyse.stacks.tree import Ints
from layerscope.analyse.stacks.wakers import stacks_of_wakers
from layerscope.analyse.tables.modules import OUTSIDE

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = (
    "idle",
    "state",
    "thread",
    "function",
    "line",
    "symbol",
    "module",
    "operator",
    "phase",
    "step",
    "waker",
)
REFUSED: dict[str, str] = {}
_STATE = ResultColumn("state", "string", "", "what it waited for")
_WHERE = (
    BY_COLUMNS["thread"],
    ResultColumn("function", "string", "", "the function it waited in, below the C library"),
    ResultColumn("line", "string", "", "innermost line of Python of the program's own"),
    ResultColumn("symbol", "string", "", "the native function it waited in"),
)
_TIMES = (
    ResultColumn("count", "int64", COUNT, "number of waits that were sampled"),
    ResultColumn("total_ns", "int64", NS, "how long they took"),
    ResultColumn(
        "share", "float64", SHARE, "total_ns as a fraction of all waits that are not idle"
    ),
    ResultColumn("avg_ns", "int64", NS, "mean duration of those measured from end to end"),
    ResultColumn("max_ns", "int64", NS, "the longest of these"),
    ResultColumn(
        "exact_share", "float64", SHARE, "the part of total_ns that was measured from end to end"
    ),
)
_WAKERS = (
    ResultColumn("waker", "string", "", "the thread that ended most of it"),
    ResultColumn("waker_line", "string", "", "where that thread was then, by its nearest sample"),
)
COLUMNS = (_STATE, *_WHERE, *_TIMES, *_WAKERS)
_MORE = {
    **BY_COLUMNS,
    **{column.name: column for column in _WHERE},
    "phase": ResultColumn(
        "phase", "string", "", "loading, forward, backward, optimizer, other; none outside steps"
    ),
    "idle": ResultColumn("idle", "bool", "", "whether it waited for work as a thread of a pool"),
    "waker": ResultColumn(
        "waker", "string", "", "the thread that ended the waits; none if that is not known"
    ),
}
TOP = 30
EMPTY = "No waits were recorded. " + sample_reader.EMPTY.partition(". ")[2]
EMPTY_OF_OTHERS = sample_reader.EMPTY_OF_OTHERS
NEXT = "layerscope flame --kind offcpu"
IDLE = "idle"
PREEMPTED = "preempted"
# What the columns of wakers are wanted of.
_ENDED = {"waker": "ended_by", "waker_line": "ended_at"}
NO_LINE = "outside Python"
# What stands for stacks that have no such frame.
_NONE = {
    "line": NO_LINE,
    "function": UNKNOWN,
    "symbol": UNKNOWN,
    "module": OUTSIDE,
    "operator": NO_OPERATOR,
}
_OF_PYTHON = ("line", "function")
_NOT_SEEN = -2
_QUERY = """
    WITH folded AS (
        SELECT {columns}, {ended}, weight_ns, count, exact, idle AS is_idle FROM waits_found
    ), ended AS (
        SELECT {keys}, ended_by, ended_at, sum(weight_ns) AS ended_ns FROM folded
        WHERE ended_by IS NOT NULL GROUP BY ALL
    ), mostly AS (
        SELECT * FROM ended
        QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY ended_ns DESC, ended_by,
          ended_at) = 1
    ), summed AS (
        SELECT {keys}, sum(count) AS count, sum(weight_ns) AS total_ns,
            CASE WHEN NOT bool_or(is_idle)
                 THEN sum(weight_ns) / greatest((SELECT sum(weight_ns) FROM folded
                 WHERE NOT is_idle), 1) END AS share,
            round(avg(weight_ns) FILTER (exact)) AS avg_ns, max(weight_ns) FILTER (exact) AS max_ns,
            coalesce(sum(weight_ns) FILTER (exact), 0) / greatest(sum(weight_ns), 1) AS exact_share,
            bool_or(is_idle) AS last
        FROM folded GROUP BY {keys}
    )
    SELECT summed.*, {wakers} FROM summed LEFT JOIN mostly ON {same}"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each state, thread, line and symbol, or for each `by` and state; most time first,
    idle ones last.
    """
    if by is None or by == "idle":
        columns = (*((_MORE["idle"],) if by else ()), _STATE, *_WHERE)
    else:
        columns = (*((_MORE[by],) if by != "state" else ()), _STATE)
    names = [column.name for column in columns]
    reader.connection().register("waits_found", _waits(reader, names))
    of_wakers = _WAKERS[1:] if by == "waker" else _WAKERS
    query = _QUERY.format(
        columns=", ".join(_folded(name, by) for name in names),
        keys=", ".join(names),
        ended=", ".join(_folded(name, by) for name in ("ended_by", "ended_at")),
        wakers=", ".join(f"mostly.{_ENDED[column.name]} AS {column.name}" for column in of_wakers),
        same=" AND ".join(f"summed.{name} IS NOT DISTINCT FROM mostly.{name}" for name in names),
    )
    order = f"last, total_ns DESC, {', '.join(names)}"
    return Result(
        "waits",
        (*columns, *_TIMES, *of_wakers),
        reader.connection().sql(query),
        order=order,
        notes=(),
    )


def _folded(name: str, by: str | None) -> str:
    """A column of the waits, without what makes no difference, unless that is asked for."""
    if by == "idle" or name == by:
        return name
    if name == "state":
        return f"CASE WHEN idle THEN '{IDLE}' ELSE state END AS state"
    if name == "symbol":
        return f"CASE WHEN NOT idle AND state <> '{PREEMPTED}' THEN symbol END AS symbol"
    return f"CASE WHEN NOT idle THEN {name} END AS {name}"


def _waits(reader: Reader, names: list[str]) -> pa.Table:
    """Every wait with the columns `names`, and what is added up."""
    frames = FrameTable()
    stacks = sample_reader.read_stacks(reader, frames)
    columns = reader.arrays(
        "samples",
        [
            "at_ns",
            "track",
            "stack",
            "weight_ns",
            "count",
            "kind",
            "state",
            "idle",
            "exact",
            "step",
            "phase",
            "waker",
        ],
    )
    is_wait = has_name(columns, "kind", "offcpu")
    places = stacks.place(columns["stack"].astype(np.int64))
    dur_ns = np.where(is_wait, columns["weight_ns"], 0)
    of_waker = stacks_of_wakers(
        columns["track"], columns["at_ns"], dur_ns, places, is_wait, columns["waker"]
    )[is_wait]
    rows = {
        name: values[is_wait] for name, values in columns.items() if not name.endswith(".names")
    }
    stack = places[is_wait]
    inner = innermost(stacks, frames)
    every = frames.all()
    table: dict[str, Any] = {name: rows[name] for name in ("weight_ns", "count", "exact", "idle")}
    table["state"] = dictionary_of(rows["state"], [str(name) for name in columns["state.names"]])
    known = thread_names(reader)
    table["thread"] = _threads(known, rows["track"])
    table["waker"] = _threads(known, rows["waker"])
    table["ended_by"] = table["waker"]
    table["ended_at"] = _wheres(inner, every, of_waker)
    if "phase" in names:
        table["phase"] = dictionary_of(
            rows["phase"], [str(name) for name in columns["phase.names"]]
        )
    if "step" in names:
        table["step"] = pa.array(rows["step"].astype(np.int64), mask=rows["step"] < 0)
    for name in names:
        if name in _NONE:
            table[name] = _frames(inner, every, name, stack)
    return pa.table(table)


def _frames(
    inner: Innermost, every: list[StackFrame], name: str, stack: Ints
) -> pa.DictionaryArray:
    """The line, function, symbol, module or operator of each stack."""
    numbers = inner.of(name, stack)
    is_unknown = ~inner.seen(stack) if name in _OF_PYTHON else stack < 0
    numbers[is_unknown] = _NOT_SEEN
    found, at = np.unique(numbers, return_inverse=True)
    call = labelled if name == "function" else named
    texts = call(every, found, _NONE[name])
    texts = [UNKNOWN if n == _NOT_SEEN else text for n, text in zip(found, texts, strict=True)]
    return dictionary_of(at, texts)


def _threads(known: dict[int, str], tracks: Ints) -> pa.DictionaryArray:
    found, at = np.unique(tracks, return_inverse=True)
    at[tracks < 0] = -1
    numbers = found.tolist()
    names = [known.get(track, f"#{track}") for track in numbers]
    return dictionary_of(at, names)


def _wheres(inner: Innermost, every: list[StackFrame], stack: Ints) -> pa.DictionaryArray:
    """The innermost line of the program's own of each stack, else of a library, else its native
    leaf, else none.
    """
    numbers = inner.of("line", stack)
    numbers = np.where(numbers < 0, inner.of("symbol", stack), numbers)
    found, at = np.unique(numbers, return_inverse=True)
    return dictionary_of(np.where(numbers < 0, -1, at), named(every, found, UNKNOWN))

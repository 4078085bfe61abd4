"""Sums by category and name over a window of a recording: what `layerscope.profiler.dumps` prints.

Categories are the domains of the program's own ranges and counters, `operator` for everything that
the framework announces by itself, `Custom Operator` for the operators that the program has added to
it, `module` for calls of modules and `primitive` for what was asked of oneDNN and MKL. Calls of a
framework's C interface and what its storage holds are called as the framework's own profiler calls
them. What was handed to an engine is executed later, and counts there.
"""

from __future__ import annotations

from typing import Any

from layerscope.model.frameworks import calls_category, custom_operators, storage_of
from layerscope.model.layers import (
    API,
    MODULES,
    OPERATORS,
    PRIMITIVES,
    PROCESS_COUNTERS,
    SYSTEM_COUNTERS,
)
from layerscope.model.memory import CPU, TENSOR
from layerscope.recording.reader import Reader

# category, name, count, total, least, most
Row = list[Any]

OPERATOR = "operator"
CUSTOM = "Custom Operator"
MODULE = "module"
PRIMITIVE = "primitive"
# The domain of ranges and counters that were given none.
NO_DOMAIN = "event"
# Of a process: as the storage of its CPU where no framework says what that holds.
STORAGE = ("Device Storage", "cpu/0")
RESIDENT = ["Process", "Resident memory"]
_CATEGORIES = {OPERATORS: OPERATOR, MODULES: MODULE, PRIMITIVES: PRIMITIVE}
# The kinds of spans that may be an operator of the program's own.
_OPERATORS = ("function", "backward")
SUBMISSION = "submit"

_SUMS = "count(*) AS count, sum(value)::BIGINT AS total, min(value) AS least, max(value) AS most"
# A share is a part of a primitive that is counted already.
_TIMES = """
    SELECT layer, kind, json_extract_string(args.json, '$.domain') AS domain, name,
        sum(weight)::BIGINT AS count, sum(dur_ns * weight)::BIGINT AS total, min(dur_ns) AS least,
        max(dur_ns) AS most
    FROM (SELECT *, CASE WHEN layer = 'ranges' THEN args END AS of_range FROM spans) AS spans
        LEFT JOIN args ON args.args = of_range
    WHERE kind <> 'share' AND NOT unfinished
        AND start_ns + dur_ns >= ? AND start_ns + dur_ns < ?
    GROUP BY ALL ORDER BY layer, total DESC, name
"""
_COUNTERS = f"""
    SELECT tracks.name AS category, counters.name, {_SUMS} FROM counters JOIN tracks USING (track)
    WHERE tracks.name NOT IN {SYSTEM_COUNTERS} AND at_ns >= ? AND at_ns < ? GROUP BY ALL
    ORDER BY ALL
"""
_MEMORY = f"""
    SELECT {_SUMS} FROM counters JOIN tracks USING (track) JOIN processes USING (process)
    WHERE counters.name = 'rss_bytes' AND tracks.name = '{PROCESS_COUNTERS}' AND at_ns >= ?
      AND pid = ?
    HAVING count(*) > 0
"""
# Live bytes at each allocation and release. Of one nanosecond the releases come first, and what is
# released in the one in which it was allocated was live at no moment.
# Where recording stops, blocks end in the table that nobody has released.
_TENSORS = f"""
    WITH blocks AS (
        SELECT allocations.* FROM allocations
            JOIN tracks USING (track) JOIN processes USING (process)
        WHERE allocator = '{TENSOR}' AND allocations.device = '{CPU}' AND NOT is_lost AND pid = ?
            AND dur_ns IS DISTINCT FROM 0
    ),
    events AS (
        SELECT at_ns, bytes AS change FROM blocks
        UNION ALL SELECT at_ns + dur_ns, -bytes FROM blocks WHERE dur_ns IS NOT NULL
    ),
    live AS (
        SELECT at_ns, sum(change) OVER earlier::BIGINT AS value FROM events
        WINDOW earlier AS (ORDER BY at_ns, change ROWS UNBOUNDED PRECEDING)
    )
    SELECT {_SUMS} FROM live
    WHERE at_ns >= ? AND at_ns < ?
        AND at_ns NOT IN (SELECT at_ns FROM marks WHERE kind IN ('paused', 'closed'))
    HAVING count(*) > 0
"""


def aggregates(reader: Reader, since_ns: int, until_ns: int, pid: int) -> dict[str, Any]:
    """What ended in [since_ns, until_ns), by category and name, by weight; memory is that of
    process `pid`.

    Memory is read a few times a second: of a window that is shorter, what was read right after it
    counts. Where allocations were recorded, what the storage of the CPU holds are tensors. `times`
    in ns, `counters` in their own unit, `memory` in bytes: [category, name, count, total, least,
    most].
    """
    counters, memory = _counters(_rows(reader, _COUNTERS, since_ns, until_ns))
    storage = _storage(*STORAGE)
    for tensors in _rows(reader, _TENSORS, pid, since_ns, until_ns):
        memory.append([*storage, *tensors])
    for resident in _rows(reader, _MEMORY, since_ns, pid):
        names = RESIDENT if memory else storage
        memory.append([*names, *resident])
    times = _times(_rows(reader, _TIMES, since_ns, until_ns))
    return {"times": times, "counters": counters, "memory": memory}


def _rows(reader: Reader, sql: str, *values: Any) -> list[Row]:
    table = reader.query(sql, list(values))
    rows = table.to_pylist()
    return [list(row.values()) for row in rows]


def _times(rows: list[Row]) -> list[Row]:
    custom = _custom(rows)
    sums: dict[tuple[str, str], Row] = {}
    for layer, kind, domain, name, *sum_of in rows:
        if kind == SUBMISSION:
            continue
        is_custom = kind in _OPERATORS and name in custom
        category = CUSTOM if is_custom else _category(layer, domain)
        before = sums.get((category, name))
        sums[category, name] = _added(before, sum_of) if before else sum_of
    return [[*key, *of_key] for key, of_key in sums.items()]


def _custom(rows: list[Row]) -> frozenset[str]:
    """The names of the operators that the program has added. What an engine executes under the name
    of its submission is the framework's own.
    """
    names, submitted = set[str](), set[str]()
    for _, kind, _, name, *_ in rows:
        if kind == SUBMISSION:
            submitted.add(name)
        elif kind in _OPERATORS:
            names.add(name)
    return custom_operators(names - submitted)


def _category(layer: str, domain: str | None) -> str:
    if layer == API:
        return calls_category()
    category = _CATEGORIES.get(layer)
    return category or domain or NO_DOMAIN


def _added(one: Row, other: Row) -> Row:
    """The sums of both."""
    count, total, least, most = one
    more, more_total, lowest, highest = other
    count += more
    total += more_total
    least = min(least, lowest)
    most = max(most, highest)
    return [count, total, least, most]


def _counters(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The program's own counters, and those of what a framework's storage holds."""
    own, storage = list[Row](), list[Row]()
    for track, counter, *sums in rows:
        held = storage_of(track, counter)
        if held is None:
            own.append([track, counter, *sums])
            continue
        names = _storage(*held)
        storage.append([*names, *sums])
    return own, storage


def _storage(category: str, device: str) -> Row:
    """Category and name of what the storage of a device holds."""
    return [category, f"Memory: {device}"]

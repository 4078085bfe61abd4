"""Sums by category and name over a window of a recording: what `layerscope.profiler.dumps` prints.

Categories are the domains of the program's own ranges and counters, `operator` for everything that
the framework announces by itself, `module` for calls of modules and `primitive` for what was asked
of oneDNN and MKL.
"""

from __future__ import annotations

from typing import Any

from layerscope.model.layers import (
    MODULES,
    OPERATORS,
    PRIMITIVES,
    PROCESS_COUNTERS,
    SYSTEM_COUNTERS,
)
from layerscope.recording.reader import Reader

OPERATOR = "operator"
MODULE = "module"
PRIMITIVE = "primitive"
# The domain of ranges and counters that were given none.
NO_DOMAIN = "event"

_DOMAIN = "coalesce(json_extract_string(args.json, '$.domain'), ?)"
_SUMS = "count(*) AS count, sum(value)::BIGINT AS total, min(value) AS least, max(value) AS most"
_CATEGORIES = " ".join(
    f"WHEN '{layer}' THEN '{category}'"
    for layer, category in ((OPERATORS, OPERATOR), (MODULES, MODULE), (PRIMITIVES, PRIMITIVE))
)
# A share is a part of a primitive that is counted already.
_TIMES = f"""
    SELECT CASE layer {_CATEGORIES} ELSE {_DOMAIN} END AS category, name, sum(weight)::BIGINT
      AS count,
        sum(dur_ns * weight)::BIGINT AS total, min(dur_ns) AS least, max(dur_ns) AS most
    FROM spans LEFT JOIN args USING (args)
    WHERE kind <> 'share' AND NOT unfinished AND start_ns + dur_ns >= ? AND start_ns + dur_ns < ?
    GROUP BY ALL ORDER BY category, total DESC, name
"""
_COUNTERS = f"""
    SELECT tracks.name AS category, counters.name, {_SUMS} FROM counters JOIN tracks USING (track)
    WHERE tracks.name NOT IN {SYSTEM_COUNTERS} AND at_ns >= ? AND at_ns < ? GROUP BY ALL
    ORDER BY ALL
"""
_MEMORY = f"""
    SELECT 'Device Storage' AS category, 'Memory: cpu/0' AS name, {_SUMS}
    FROM counters JOIN tracks USING (track) JOIN processes USING (process)
    WHERE counters.name = 'rss_bytes' AND tracks.name = '{PROCESS_COUNTERS}' AND at_ns >= ?
      AND pid = ?
    HAVING count(*) > 0
"""


def aggregates(reader: Reader, since_ns: int, until_ns: int, pid: int) -> dict[str, Any]:
    """What ended in [since_ns, until_ns), by category and name, by weight; memory is that of
    process `pid`.

    Memory is read a few times a second: of a window that is shorter, what was read right after it
    counts. `times` in ns, `counters` in their own unit, `memory` in bytes: [category, name, count,
    total, least, most].
    """
    tables = {
        "times": reader.query(_TIMES, [NO_DOMAIN, since_ns, until_ns]),
        "counters": reader.query(_COUNTERS, [since_ns, until_ns]),
        "memory": reader.query(_MEMORY, [since_ns, pid]),
    }
    return {
        name: [list(row.values()) for row in table.to_pylist()] for name, table in tables.items()
    }

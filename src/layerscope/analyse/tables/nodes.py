"""Nodes of the graphs of ONNX Runtime: which provider executes each, and how well its threads share
the work.

module         the model, by the name of its file; empty in a profile that another run wrote
name           type of the node
node           its name, after the optimisations of the session
provider       what executes it
asked          the provider that the program asked for first, where the node ran on another one: it
               fell back. Of a profile without that, the one that most other nodes ran on
count          calls that were recorded
total_ns       sum of their durations
run_ns         how long the thread that executes the node computed its own part of what the threads
               of the pool did together
wait_ns        how long it then waited for the others
imbalance      wait_ns divided by both: 0 is shared evenly, or the others had less
tasks          how many parts the other threads took, most first by thread. ONNX Runtime tells no
               times of these
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layerscope.analyse.result import COUNT, NS, RATIO, Result, ResultColumn, of_rows
from layerscope.model.stored_json import decoded

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("module", "string", "", "the model"),
    ResultColumn("name", "string", "", "type of the node"),
    ResultColumn("node", "string", "", "its name"),
    ResultColumn("provider", "string", "", "what executes it"),
    ResultColumn("asked", "string", "", "what was asked for, where that is another one"),
    ResultColumn("count", "int64", COUNT, "calls"),
    ResultColumn("total_ns", "int64", NS, "sum of their durations"),
    ResultColumn("run_ns", "int64", NS, "its own part of what threads did together"),
    ResultColumn("wait_ns", "int64", NS, "waiting for the other threads"),
    ResultColumn("imbalance", "float64", RATIO, "wait_ns divided by both"),
    ResultColumn("tasks", "string", "", "parts that each other thread took"),
)
TOP = 30
EMPTY = (
    "No node of ONNX Runtime was recorded: they are in the first runs of a session, and in a "
    "profile that a session writes (SessionOptions.enable_profiling)."
)
NEXT = "layerscope table operators --by shape"
CPU = "CPUExecutionProvider"
# Of the spans with the same arguments, which are JSON.
_QUERY = """
    SELECT modules.path AS module, spans.name, args.json, count, total_ns, count / of_all AS part
    FROM (
        SELECT name, module, args, count(*) AS count, sum(dur_ns)::BIGINT AS total_ns,
            sum(count(*)) OVER (PARTITION BY args) AS of_all
        FROM spans WHERE kind = 'function' AND args IS NOT NULL
        GROUP BY name, module, args
    ) AS spans JOIN args USING (args) LEFT JOIN modules USING (module)
    WHERE json LIKE '%"node_index"%'"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each node, most time first."""
    rows: dict[tuple[str, ...], list[Any]] = {}
    for one in reader.query(_QUERY).to_pylist():
        told = decoded(one["json"].encode(), dict[str, Any])
        provider = str(told.get("provider", ""))
        key = (one["module"] or "", one["name"], str(told.get("node", "")), provider)
        row = rows.setdefault(key, [told.get("asked"), 0, 0, 0, 0, []])
        run_ns, wait_ns, tasks = _of_pool(told, float(one["part"]))
        for place, more in enumerate((one["count"], one["total_ns"], run_ns, wait_ns), 1):
            row[place] += more
        row[-1] = _added(row[-1], tasks)
    found = [_row(key, row, _most_used(rows)) for key, row in rows.items()]
    found.sort(key=lambda row: row[6], reverse=True)
    return of_rows("nodes", COLUMNS, found)


def _of_pool(told: dict[str, Any], part: float) -> tuple[int, int, list[int]]:
    """What a thread computed and waited, and the parts of the others: in a recording of this part
    of all calls with these arguments, in a profile of one call.
    """
    pool = told.get("pool")
    if isinstance(pool, dict):
        run_ns, wait_ns = (round(1_000 * part * pool[name]) for name in ("run_us", "wait_us"))
        return run_ns, wait_ns, [round(part * count) for count in pool["tasks"]]
    stats = told.get("thread_scheduling_stats")
    main = stats.get("main_thread") if isinstance(stats, dict) else None
    if not isinstance(main, dict):
        return 0, 0, []
    run, wait = (main.get(name) for name in ("Run", "Wait"))
    return 1_000 * int(run or 0), 1_000 * int(wait or 0), []


def _added(one: list[int], other: list[int]) -> list[int]:
    length = max(len(one), len(other))
    padded = [[*some, *[0] * (length - len(some))] for some in (one, other)]
    return [sum(pair) for pair in zip(*padded, strict=True)]


def _most_used(rows: dict[tuple[str, ...], list[Any]]) -> dict[str, str]:
    """By model the provider that most nodes run on, but for that of the CPU."""
    nodes: dict[str, dict[str, int]] = {}
    for module, _, _, provider in rows:
        counts = nodes.setdefault(module, {})
        counts[provider] = counts.get(provider, 0) + (provider != CPU)
    return {module: max(counts, key=lambda one: counts[one]) for module, counts in nodes.items()}


def _row(key: tuple[str, ...], row: list[Any], most_used: dict[str, str]) -> tuple[Any, ...]:
    asked, count, total_ns, run_ns, wait_ns, tasks = row
    module, name, node, provider = key
    others = most_used[module]
    if asked is None and provider == CPU and others != CPU:
        asked = others
    both_ns = run_ns + wait_ns
    imbalance = wait_ns / both_ns if both_ns else None
    parts = ", ".join(f"{count:,}" for count in sorted(tasks, reverse=True) if count)
    figures = (count, total_ns, run_ns, wait_ns, imbalance)
    return module, name, node, provider, asked, *figures, parts

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

from collections import Counter
from collections.abc import Collection
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

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


class _ExecutedNode(Struct):
    """A node of one model on one provider, and what was recorded of its calls."""

    module: str
    name: str
    node: str
    provider: str
    asked: str | None
    count: int = 0
    total_ns: int = 0
    run_ns: int = 0
    wait_ns: int = 0
    tasks: list[int] = field(default_factory=list)

    @property
    def imbalance(self) -> float | None:
        """The part of the time of its threads that is waiting; None: they did nothing together."""
        both_ns = self.run_ns + self.wait_ns
        return self.wait_ns / both_ns if both_ns else None

    @property
    def parts(self) -> str:
        """What each other thread took, most first."""
        taken = sorted(self.tasks, reverse=True)
        return ", ".join(f"{count:,}" for count in taken if count)


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each node, most time first."""
    nodes: dict[tuple[str, ...], _ExecutedNode] = {}
    for row in reader.query(_QUERY).to_pylist():
        told = decoded(row["json"].encode(), dict[str, Any])
        key = (
            row["module"] or "",
            row["name"],
            str(told.get("node", "")),
            str(told.get("provider", "")),
        )
        node = nodes.setdefault(key, _ExecutedNode(*key, told.get("asked")))
        node.count += row["count"]
        node.total_ns += row["total_ns"]
        _add_pool(node, told, float(row["part"]))
    _name_what_was_asked(nodes.values())
    found = sorted(nodes.values(), key=lambda node: node.total_ns, reverse=True)
    rows = [_row(node) for node in found]
    return of_rows("nodes", COLUMNS, rows)


def _add_pool(node: _ExecutedNode, told: dict[str, Any], part: float) -> None:
    """Add what its threads did together: in a recording in this part of all calls with these
    arguments, in a profile in one call.
    """
    pool = told.get("pool")
    if isinstance(pool, dict):
        node.run_ns += round(1_000 * part * pool["run_us"])
        node.wait_ns += round(1_000 * part * pool["wait_us"])
        tasks = [round(part * count) for count in pool["tasks"]]
        pairs = zip_longest(node.tasks, tasks, fillvalue=0)
        node.tasks = [before + more for before, more in pairs]
        return
    stats = told.get("thread_scheduling_stats")
    main = stats.get("main_thread") if isinstance(stats, dict) else None
    if isinstance(main, dict):
        node.run_ns += 1_000 * int(main.get("Run") or 0)
        node.wait_ns += 1_000 * int(main.get("Wait") or 0)


def _name_what_was_asked(nodes: Collection[_ExecutedNode]) -> None:
    """Where it is not known which provider was asked for, the one that most nodes of a model run
    on, but for that of the CPU.
    """
    others = Counter((node.module, node.provider) for node in nodes if node.provider != CPU)
    most_used: dict[str, str] = {}
    for (module, provider), _ in others.most_common():
        most_used.setdefault(module, provider)
    for node in nodes:
        if node.asked is None and node.provider == CPU:
            node.asked = most_used.get(node.module)


def _row(node: _ExecutedNode) -> tuple[Any, ...]:
    return (
        node.module,
        node.name,
        node.node,
        node.provider,
        node.asked,
        node.count,
        node.total_ns,
        node.run_ns,
        node.wait_ns,
        node.imbalance,
        node.parts,
    )

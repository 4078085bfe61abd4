"""A network only answers, and PyTorch prepares gradients that nobody asks for.

**What it looks for.** Requests whose operators move PyTorch's sequence number on, which counts the
nodes of its graph of gradients, in a process without any backward function. The price is their
number times what one costs.

**Why it matters.** Every operator makes a node, keeps its inputs for it, and frees both after the
request. The memory of all layers stays taken until then.

**What to do.** `with torch.inference_mode():` around the requests, or `torch.no_grad()`.

**When it is wrong.** If gradients of the answers are taken in a part of the run that was not
recorded. Large operators do not become faster: then the price is small.

Source: PyTorch's documentation of autograd's mechanics and of `RecordFunction`'s sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.workload import Workload
from layerscope.model.layers import ANSWERING

NEEDS = ("steps", "operators")
THRESHOLDS = (
    Threshold("least", 0.5, "of that", "without a recording it takes as much less"),
    Threshold(
        "node",
        2000.0,
        "ns a node of the graph",
        "making, keeping and freeing one took 1.0 to 1.6 µs, PyTorch 2.13 on an EPYC",
    ),
)
REMEDIES = (Remedy("answer without gradients: `with torch.inference_mode():` around the requests"),)
_BACKWARD = "SELECT count(*) AS n FROM totals WHERE layer = 'operators' AND kind = 'backward'"
_NODES = """
    SELECT step, max(sequence) - min(sequence) AS nodes
    FROM step_spans WHERE kind = 'function' GROUP BY step"""
_MEAN = f"SELECT coalesce(avg(nodes), 0) AS nodes FROM ({_NODES})"
EVIDENCE = """
    SELECT name, module, count(*) AS calls, min(sequence) AS first_sequence,
        max(sequence) AS last_sequence
    FROM step_spans WHERE kind = 'function' AND sequence IS NOT NULL
    GROUP BY ALL ORDER BY calls DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The nodes of graphs that no backward pass walks."""
    if workload.rule_of_steps not in ANSWERING or workload.rows(_BACKWARD)[0]["n"]:
        return
    nodes = float(workload.rows(_MEAN)[0]["nodes"])
    if not nodes:
        return
    cost_ns = limits["node"]
    sql = f"SELECT step, nodes * {cost_ns} AS ns FROM ({_NODES})"
    price = workload.price(sql, limits["least"])
    module = largest(workload, "operator_totals", "module", "kind = 'function'", "count")
    yield Finding(
        rule="gradients_never_used",
        title=f"{nodes:,.0f} operators of a request prepare gradients that nothing uses",
        price=price,
        where=Where(module=module),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE),),
        certainty=LIKELY,
    )

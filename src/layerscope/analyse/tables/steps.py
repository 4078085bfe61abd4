"""Steps: the iterations of the training loop or the requests served, and where the time of each went.

process, step  number of the step in its process, from 0
rule           what a step was taken to be: what was marked, one optimizer step, one batch of the loader, or one
               request (a call of the outermost module, where nothing is trained)
start_ns       when it started, on the run's clock; printed in seconds since the run began
dur_ns         its duration, which is the sum of the five phases:
load_ns        waiting for the data loader
forward_ns     the forward pass
backward_ns    the backward pass
optimizer_ns   the optimizer
other_ns       the rest
of_median      dur_ns divided by the median of the steps of its process that are not warm-up:
               2 is a step that took twice as long as usual
warmup         left out of the averages, because the first steps set things up
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import NS, RATIO, Result, ResultColumn

if TYPE_CHECKING:
    from layerscope.store.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("step", "int32", "", "number of the step in its process"),
    ResultColumn("rule", "string", "", "what a step was taken to be"),
    ResultColumn("start_ns", "int64", NS, "when it started", instant=True),
    ResultColumn("dur_ns", "int64", NS, "duration"),
    ResultColumn("load_ns", "int64", NS, "waiting for the data loader"),
    ResultColumn("forward_ns", "int64", NS, "the forward pass"),
    ResultColumn("backward_ns", "int64", NS, "the backward pass"),
    ResultColumn("optimizer_ns", "int64", NS, "the optimizer"),
    ResultColumn("other_ns", "int64", NS, "the rest"),
    ResultColumn("of_median", "float64", RATIO, "dur_ns divided by the median of its process"),
    ResultColumn("warmup", "bool", "", "left out of the averages"),
)
TOP = 0
EMPTY = "No steps were found: nothing was marked, no optimizer stepped, no data loader was read, no module was called."
NEXT = 'layerscope table steps --where "of_median > 2"'

_QUERY = """
    WITH typical AS (
        SELECT process, coalesce(median(dur_ns) FILTER (NOT warmup), median(dur_ns)) AS median_ns
        FROM steps GROUP BY process
    )
    SELECT steps.*, dur_ns / nullif(median_ns, 0) AS of_median
    FROM steps JOIN typical USING (process)"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each step, in the order of time."""
    return Result("steps", COLUMNS, reader.connection().sql(_QUERY), order="start_ns, process, step")

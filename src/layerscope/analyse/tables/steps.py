"""Steps: the iterations of the training loop or the calls of the network, and their phases.

process, step  number of the step in its process, from 0
rule           what a step was taken to be: what was marked, one optimizer step, one batch of the
               loader, a request that a server hands to the program or the program marks, or one
               call of the outermost module, where nothing is trained
start_ns       when it started, on the run's clock; printed in seconds since the run began
dur_ns         its duration, which is the sum of the five phases:
load_ns        waiting for the data loader
forward_ns     the forward pass
backward_ns    the backward pass
optimizer_ns   the optimizer
other_ns       the rest
others_ns      of a request that was marked, the part of other_ns in which calls of the model ran
               that are not its own; null: it is no such request
cpus_used      CPU time of all threads of its process in it divided by dur_ns: 2 is two CPUs that
               were always busy. Known where stacks are recorded; the CPU time is wrong by less than
               the period of samples (10 ms) for each thread that was busy when the step began or
               ended. layerscope table counters --by step has more
of_median      dur_ns divided by the median of the steps of its process that are not warm-up:
               2 is a step that took twice as long as usual
warmup         left out of the averages, because the first steps set things up
raised         the exception that ended it, of a request that failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.by_step import cpu_ns_within
from layerscope.analyse.failures import raised_marks
from layerscope.analyse.request_waits import others_ns
from layerscope.analyse.result import NS, RATIO, Result, ResultColumn

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
OTHERS = ResultColumn("others_ns", "int64", NS, "while calls of other requests ran")
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
    OTHERS,
    ResultColumn("cpus_used", "float64", RATIO, "CPU time in it divided by dur_ns"),
    ResultColumn("of_median", "float64", RATIO, "dur_ns divided by the median of its process"),
    ResultColumn("warmup", "bool", "", "left out of the averages"),
    ResultColumn("raised", "string", "", "the exception that ended it"),
)
TOP = 0
EMPTY = (
    "No steps were found: nothing was marked, no optimizer stepped, no data loader was read, "
    "no module was called."
)
NEXT = "layerscope table steps --sort dur_ns"

_QUERY = """
    WITH typical AS (
        SELECT process, coalesce(median(dur_ns) FILTER (NOT warmup), median(dur_ns)) AS median_ns
        FROM steps GROUP BY process
    )
    SELECT steps.*, others_ns, raised, used_ns / nullif(dur_ns, 0) AS cpus_used,
      dur_ns / nullif(median_ns, 0) AS of_median
    FROM steps JOIN typical USING (process) JOIN used_by_step USING (process, step)"""


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each step, in the order of time."""
    import pyarrow as pa

    wanted = ["process", "step", "start_ns", "dur_ns", "forward_ns", "rule"]
    steps = reader.arrays("steps", wanted)
    tracks = reader.arrays("tracks", ["track", "process", "name"])
    start_ns, end_ns = steps["start_ns"], steps["start_ns"] + steps["dur_ns"]
    used_ns = cpu_ns_within(reader, tracks, steps["process"], start_ns, end_ns)
    used = {
        "process": steps["process"],
        "step": steps["step"],
        "used_ns": pa.array(used_ns, mask=used_ns < 0),
    }
    others = others_ns(reader, steps)
    used["others_ns"] = pa.array(others, mask=others < 0)
    raised = raised_marks(reader)
    ending = np.where(
        steps["rule.names"][steps["rule"]] == "request", raised.ending(end_ns, steps["process"]), -1
    )
    used["raised"] = pa.array(
        [raised.exception[at] if at >= 0 else None for at in ending.tolist()], pa.string()
    )
    reader.connection().register("used_by_step", pa.table(used))
    is_missing = {OTHERS.name} if (others < 0).all() else set()
    columns = tuple(column for column in COLUMNS if column.name not in is_missing)
    relation = reader.connection().sql(_QUERY)
    return Result("steps", columns, relation, order="start_ns, process, step")

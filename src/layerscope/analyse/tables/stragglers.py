"""Stragglers: the ranks that the others waited for in collectives on GPUs, and why.

rank          number in the job
collectives   collectives of several ranks that it took part in
last          how often it came last
late          how often it came late: behind the median of the ranks (of an even number, the
              earlier of the two in the middle), by at least a microsecond and a fourth of what the
              last one was behind
late_ns       by how much then, on average
max_late_ns   the most
total_ns      the sum: what the others waited because of it, at most
reason        what it had most more of than the median rank, from the collective before until it
              came: compute, copy, loader, host (the GPU waited for the program), or other
compute_ns, copy_ns, loader_ns, host_ns, other_ns
              how much more of each, on average over the collectives that it was late to

Clocks of the ranks are fitted to the ends of collectives, where there are at least ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layerscope.analyse.gpu.columns import RANK
from layerscope.analyse.result import COUNT, NS, Result, ResultColumn, of_rows

if TYPE_CHECKING:
    from layerscope.analyse.gpu.stragglers import Straggler
    from layerscope.recording.reader import Reader

BY = ()
OPTIONS = ("engine",)
REFUSED: dict[str, str] = {}
COLUMNS = (
    RANK,
    ResultColumn("collectives", "int64", COUNT, "that it took part in"),
    ResultColumn("last", "int64", COUNT, "how often it came last"),
    ResultColumn("late", "int64", COUNT, "how often it came late"),
    ResultColumn("late_ns", "float64", NS, "behind the median of the ranks, mean"),
    ResultColumn("max_late_ns", "int64", NS, "the most"),
    ResultColumn("total_ns", "int64", NS, "the sum"),
    ResultColumn("reason", "string", "", "what it had most more of"),
    ResultColumn("compute_ns", "float64", NS, "more computation, mean", signed=True),
    ResultColumn("copy_ns", "float64", NS, "more copies, mean", signed=True),
    ResultColumn("loader_ns", "float64", NS, "more of the data loader, mean", signed=True),
    ResultColumn("host_ns", "float64", NS, "more waiting for the host, mean", signed=True),
    ResultColumn("other_ns", "float64", NS, "more other waiting, mean", signed=True),
)
TOP = 0
EMPTY = (
    "No collective of several ranks was recorded on GPUs. Name a folder with a trace of each rank "
    "of a program that calls some (all_reduce, for example)."
)
NEXT = "layerscope table collectives"


def build(reader: Reader, by: str | None = None, engine: str = "duckdb") -> Result:
    """One row for each rank; the one that cost most first."""
    from layerscope.analyse.gpu.collectives import read_job
    from layerscope.analyse.gpu.stragglers import stragglers

    with read_job(reader, engine) as job:
        if job is None:
            return of_rows("stragglers", COLUMNS, [])
        rows = [_row(one) for one in stragglers(job)]
        notes = job.notes
    return of_rows("stragglers", COLUMNS, rows, notes=notes)


def _row(of: Straggler) -> tuple[Any, ...]:
    counts = (of.rank, of.collectives, of.last, of.late)
    if not of.late:
        nothing = [None] * len(of.more_ns)
        return (*counts, None, None, 0, None, *nothing)
    mean_ns = of.total_ns / of.late
    more_ns = [total_ns / of.late for total_ns in of.more_ns]
    lateness = (mean_ns, of.max_late_ns, of.total_ns)
    return (*counts, *lateness, of.reason, *more_ns)

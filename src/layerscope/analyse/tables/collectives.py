"""Collectives: what ranks sent each other on GPUs, how fast, and how long they waited for the last.

name          all_reduce, all_gather, reduce_scatter, ...; with --by call one row for each of them
group         process group, "" where the traces tell none
ranks         ranks that took part
bytes         size on each rank: what goes in, of an all_gather what comes out; none: not told
dtype         type of the elements
count         how many collectives
transfer_ns   the shortest duration of any rank, on average: the last to come waits for nobody
algorithm_rate
              bytes divided by transfer_ns: algorithm bandwidth, as nccl-tests has it
bus_rate      the same times 2 (n - 1) / n for all_reduce of n ranks, (n - 1) / n for all_gather,
              reduce_scatter and all_to_all: what the slowest link carried
skew_ns       from the first to the last rank that came, on average
max_skew_ns   the longest
wait_ns       sum over the ranks of the time in which they waited for the last one
last_rank     the rank that came last most often
last_count    how often that was

Clocks of the ranks are fitted to the ends of collectives, where there are at least ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import (
    BYTES,
    COUNT,
    GBYTE_PER_S,
    NS,
    Result,
    ResultColumn,
    of_arrow,
    of_rows,
)

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("call",)
OPTIONS = ("engine",)
REFUSED: dict[str, str] = {}
_START = ResultColumn("start_ns", "int64", NS, "start of the first rank", instant=True)
COLUMNS = (
    ResultColumn("name", "string", "", "which collective"),
    ResultColumn("group", "string", "", "process group"),
    ResultColumn("ranks", "int32", COUNT, "ranks that took part"),
    ResultColumn("bytes", "int64", BYTES, "size on each rank"),
    ResultColumn("dtype", "string", "", "type of the elements"),
    ResultColumn("count", "int64", COUNT, "how many"),
    ResultColumn("transfer_ns", "float64", NS, "shortest duration of any rank, mean"),
    ResultColumn("algorithm_rate", "float64", GBYTE_PER_S, "bytes divided by transfer_ns"),
    ResultColumn("bus_rate", "float64", GBYTE_PER_S, "what the slowest link carried"),
    ResultColumn("skew_ns", "float64", NS, "from the first to the last rank, mean"),
    ResultColumn("max_skew_ns", "int64", NS, "the longest"),
    ResultColumn("wait_ns", "int64", NS, "ranks waited for the last one, sum"),
    ResultColumn("last_rank", "int32", "", "came last most often"),
    ResultColumn("last_count", "int64", COUNT, "how often"),
)
TOP = 30
EMPTY = (
    "No collective of several ranks was recorded on GPUs. Name a folder with a trace of each rank "
    "of a program that calls some (all_reduce, for example)."
)
NEXT = "layerscope table stragglers"


def build(reader: Reader, by: str | None = None, engine: str = "duckdb") -> Result:
    """One row for each kind and size of collective in each group, or for each of them."""
    from layerscope.analyse.gpu import collective_questions
    from layerscope.analyse.gpu.collectives import read_job

    columns = (_START, *COLUMNS) if by else COLUMNS
    ask = collective_questions.each if by else collective_questions.by_kind
    with read_job(reader, engine) as job:
        if job is None:
            return of_rows("collectives", columns, [])
        found = job.answer(ask(job.calls))
        notes = job.notes
    return of_arrow("collectives", columns, found, notes=notes)

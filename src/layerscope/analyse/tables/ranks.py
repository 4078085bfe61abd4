"""Ranks: the processes of a distributed job side by side, and which of them holds the others up.

rank       its number in the job
host       the machine it ran on
processes  its processes: its own and those that load its data
steps      its steps, warm-up included; the times are means over the others
mean_ns    how long a step took
wait_ns    the part of it in which it waited in a collective for ranks that came later; none where
           the calls of the ranks do not match, and on a GPU, where only launching them is seen
work_ns    the rest: the rank with the most is the one that the others wait for
of_median  work_ns divided by the median of all ranks; of an even number of them the smaller of
           the two in the middle
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from layerscope.analyse.result import COUNT, NS, RATIO, Result, ResultColumn

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
OPTIONS = ("engine",)
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("rank", "int32", "", "number in the job"),
    ResultColumn("host", "string", "", "machine"),
    ResultColumn("processes", "int64", COUNT, "its processes"),
    ResultColumn("steps", "int64", COUNT, "its steps"),
    ResultColumn("mean_ns", "float64", NS, "a step"),
    ResultColumn("wait_ns", "float64", NS, "waiting for other ranks, of a step"),
    ResultColumn("work_ns", "float64", NS, "a step without waiting"),
    ResultColumn("of_median", "float64", RATIO, "work_ns divided by the median of the ranks"),
)
TOP = 0
EMPTY = "No process was a rank of a distributed job."
NEXT = "layerscope table processes"


def build(reader: Reader, by: str | None = None, engine: str = "duckdb") -> Result:
    """One row for each rank."""
    import pyarrow as pa

    from layerscope.analyse.ranks import rank_times

    rows = []
    for times in rank_times(reader, engine):
        row = asdict(times)
        row["work_ns"] = times.work_ns
        rows.append(row)
    arrays = {}
    for column in COLUMNS:
        values = [row[column.name] for row in rows]
        arrays[column.name] = pa.array(values, pa.type_for_alias(column.type))
    relation = reader.connection().from_arrow(pa.table(arrays))
    return Result("ranks", COLUMNS, relation, order="rank")

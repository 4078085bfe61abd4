"""Copies: what was copied to, from and within GPUs, and how fast.

rank       number of its process in the job, 0 where there is one
device     number of the GPU
name       kind of copy: from where to where, or a memory set
count      how many
bytes      what they copied or set; none where it is not known
total_ns   sum of their durations
rate       bytes divided by total_ns
mean_rate  bytes of all copies of this kind a second, on average over the time in which at least
           one ran: more than rate where several ran at a time
p99_rate   it was not higher for 99 % of that time
max_rate   the highest
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analyse.gpu import arguments
from layerscope.analyse.gpu.columns import DEVICE, RANK
from layerscope.analyse.gpu.work import WORK
from layerscope.analyse.result import BYTES, COUNT, GBYTE_PER_S, NS, Result, ResultColumn, of_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    RANK,
    DEVICE,
    ResultColumn("name", "string", "", "kind of copy"),
    ResultColumn("count", "int64", COUNT, "copies"),
    ResultColumn("bytes", "int64", BYTES, "what they copied"),
    ResultColumn("total_ns", "int64", NS, "sum of their durations"),
    ResultColumn("rate", "float64", GBYTE_PER_S, "bytes divided by total_ns"),
    ResultColumn("mean_rate", "float64", GBYTE_PER_S, "of all at a time, over time"),
    ResultColumn("p99_rate", "float64", GBYTE_PER_S, "not higher for 99 % of the time"),
    ResultColumn("max_rate", "float64", GBYTE_PER_S, "the highest"),
)
TOP = 0
EMPTY = "No copy to or from a GPU was recorded."
NEXT = "layerscope table gpu"
_QUERY = f"""
    SELECT rank, device, name, start_ns, end_ns, {arguments.BYTES} AS bytes
    FROM ({WORK}) AS work LEFT JOIN args USING (args)
    WHERE kind = 2 ORDER BY rank, device, name, start_ns"""
_KEYS = ("rank", "device", "name")


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each kind of copy of each GPU."""
    found = reader.query(_QUERY)
    ranks, devices, names = (found[key].to_pylist() for key in _KEYS)
    keys = zip(ranks, devices, names, strict=True)
    rows = []
    begin = 0
    for key, same in groupby(keys):
        count = len(list(same))
        figures = _figures(found.slice(begin, count))
        rows.append((*key, *figures))
        begin += count
    return of_rows("copies", COLUMNS, rows)


def _figures(part: pa.Table) -> tuple[Any, ...]:
    """Count, bytes, duration and rates of copies of one kind; bytes per ns are GB/s."""
    from layerscope.analyse.gpu.levels import levels, statistics

    count = part.num_rows
    start_ns = part["start_ns"].to_numpy()
    end_ns = part["end_ns"].to_numpy()
    lasted_ns = end_ns - start_ns
    total_ns = int(lasted_ns.sum())
    if part["bytes"].null_count or not total_ns:
        return count, None, total_ns, None, None, None, None
    size = part["bytes"].to_numpy()
    rate = size / np.maximum(lasted_ns, 1)
    at_ns = np.concatenate((start_ns, end_ns))
    running, _ = levels(at_ns, np.repeat([1, -1], count))
    level, moments_ns = levels(at_ns, np.concatenate((rate, -rate)))
    found = statistics(level[running > 0], moments_ns[running > 0])
    assert found is not None  # some of them lasted
    whole = int(size.sum())
    return count, whole, total_ns, whole / total_ns, found.mean, found.p99, found.most

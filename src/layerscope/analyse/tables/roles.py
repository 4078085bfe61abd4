"""Roles: what a step of a program with GPUs was spent on, each moment once.

rank      number of its process in the job, 0 where there is one
role      kernel (that computes), memcpy, memset, communication, runtime (calls of CUDA or HIP),
          loader, operators, other. Where several went on at a time the first of these counts
avg_ns    time of a step, on average
share     part of the time of all steps
total_ns  time in all steps

A step goes on until the last work that it launched has ended; the warm-up counts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.gpu.columns import RANK
from layerscope.analyse.result import NS, SHARE, Result, ResultColumn, of_rows

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    RANK,
    ResultColumn("role", "string", "", "what the time was spent on"),
    ResultColumn("avg_ns", "float64", NS, "of a step, mean"),
    ResultColumn("share", "float64", SHARE, "of the time of all steps"),
    ResultColumn("total_ns", "int64", NS, "in all steps"),
)
TOP = 0
EMPTY = "No steps were found: there are none without an optimizer, a data loader or marked steps."
NEXT = "layerscope table gpu"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each role of each rank."""
    from layerscope.analyse.gpu.roles import role_times

    rows = []
    for times in role_times(reader):
        for role, total_ns in times.of_role_ns.items():
            share = total_ns / times.total_ns if times.total_ns else 0.0
            rows.append((times.rank, role, total_ns / times.steps, share, total_ns))
    return of_rows("roles", COLUMNS, rows)

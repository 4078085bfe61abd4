"""What each moment of a step was spent on, by the role that counts first: a kernel that computes,
else a copy, a memory set, communication, a call of the runtime, the data loader, another operator,
or nothing that is known.

Each moment counts once, whatever else went on then, so the roles add up to the steps. The order is
that of the profiler plugin of TensorBoard (0.4.3); steps are those of `profiled_steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.analyse.gpu.intervals import difference, merged
from layerscope.analyse.gpu.profiled_steps import StepWindows, step_windows
from layerscope.analyse.gpu.work import IS_COMMUNICATION

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

ROLES = ("kernel", "memcpy", "memset", "communication", "runtime", "loader", "operators")
OTHER = "other"
_SPANS = f"""
    SELECT spans.start_ns, spans.start_ns + spans.dur_ns AS end_ns,
           CASE WHEN layer = 'gpu' AND spans.kind <> 'kernel' THEN spans.kind::VARCHAR
                WHEN layer = 'gpu' AND ({IS_COMMUNICATION}) THEN 'communication'
                WHEN layer = 'gpu' THEN 'kernel'
                WHEN layer = 'runtime' THEN 'runtime'
                WHEN spans.kind = 'loader' THEN 'loader' ELSE 'operators' END AS role
    FROM spans JOIN tracks USING (track) JOIN processes USING (process)
         LEFT JOIN args USING (args)
    WHERE coalesce(processes.rank, 0) = ?
      AND (layer IN ('gpu', 'runtime') OR layer = 'operators' AND spans.kind <> 'range')
    ORDER BY role, spans.start_ns"""


class RoleTimes(Struct, frozen=True):
    """Of one rank: how many steps, how long they took, and the time of each role, all in ns."""

    rank: int
    steps: int
    total_ns: int
    of_role_ns: dict[str, int]


def role_times(reader: Reader) -> list[RoleTimes]:
    """Of each rank that has steps."""
    return [_of_rank(reader, windows) for windows in step_windows(reader)]


def _of_rank(reader: Reader, windows: StepWindows) -> RoleTimes:
    import pyarrow.compute as pc

    rows = reader.query(_SPANS, [windows.rank])
    left = windows.windows
    times = {}
    for role in ROLES:
        its = rows.filter(pc.equal(rows["role"], role))
        spans = merged(its["start_ns"].to_numpy(), its["end_ns"].to_numpy())
        rest = difference(left, spans)
        times[role] = left.total_ns - rest.total_ns
        left = rest
    times[OTHER] = left.total_ns
    return RoleTimes(windows.rank, windows.steps, windows.windows.total_ns, times)

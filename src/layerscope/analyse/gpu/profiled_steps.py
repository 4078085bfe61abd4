"""Steps as windows of GPUs: a step goes on until the last work that it launched has ended.

So the windows of a rank follow one another: each begins where its step began on the host, but not
before the window before it has ended, and ends with the step or with its last work, whichever is
later. The profiler plugin of TensorBoard (0.4.3) has defined them so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.gpu.intervals import Intervals

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_STEPS = """
    WITH worked AS (
        SELECT tracks.process, spans.step, max(spans.start_ns + spans.dur_ns) AS end_ns
        FROM spans JOIN tracks USING (track)
        WHERE spans.layer = 'gpu' AND spans.step IS NOT NULL GROUP BY ALL
    )
    SELECT coalesce(processes.rank, 0) AS rank, steps.start_ns,
           greatest(steps.start_ns + steps.dur_ns, worked.end_ns) AS end_ns
    FROM steps JOIN processes USING (process)
         LEFT JOIN worked ON worked.process = steps.process AND worked.step = steps.step
    ORDER BY rank, steps.start_ns"""


class StepWindows(Struct, frozen=True):
    """The windows of a rank, which do not overlap."""

    rank: int
    windows: Intervals

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.windows.start_ns)


def step_windows(reader: Reader) -> list[StepWindows]:
    """The windows of each rank that has steps."""
    rows = reader.query(_STEPS)
    rank = rows["rank"].to_numpy()
    found = []
    for one in np.unique(rank).tolist():
        is_its = rank == one
        start_ns = rows["start_ns"].to_numpy()[is_its]
        end_ns = np.maximum.accumulate(rows["end_ns"].to_numpy()[is_its])
        start_ns[1:] = np.maximum(start_ns[1:], end_ns[:-1])
        found.append(StepWindows(one, Intervals(start_ns, np.maximum(end_ns, start_ns))))
    return found

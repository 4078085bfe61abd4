"""The thread that makes the steps waits for another thread: for a lock that it holds, or for
something that it has to deliver.

**What it looks for.** Waits of that thread on a futex, outside of the data loader, which are none
for the interpreter's lock (`gil_wait`), for another rank (`uneven_ranks`) or at barriers of OpenMP.
The evidence has the line that waits, and the line in which the other thread was last seen before it
ended the wait.

**Why it matters.** Nothing else of the step goes on meanwhile.

**What to do.** Hold the lock for shorter: copy under it, and write, send or compute outside of it.
Where the wait is for a result, ask for it later or have it made earlier.

**When it is wrong.** If the step needs what the other thread makes, and that takes as long wherever
it runs, the wait is its price. Waits that are shorter than 10 ms are mostly not seen inside of and
not counted here.

Source: `futex(2)`; the states of waits in docs/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy
from layerscope.analyse.findings.waits import THRESHOLDS, waits_for
from layerscope.analyse.findings.workload import Workload

__all__ = ["NEEDS", "THRESHOLDS", "find"]

NEEDS = ("samples",)
REMEDIES = (Remedy("hold the lock for shorter: write, send or compute outside of it, on a copy"),)
# Waits for other ranks are of `uneven_ranks`.
_CONDITION = """
    state = 'lock' AND stack NOT IN (
        SELECT stack FROM stack_frames JOIN frames USING (frame)
        WHERE regexp_matches(name, '(^|[^\\w])(c10d|gloo)::|^MPI_|distributed_c10d|horovod')
            OR contains(coalesce(file, ''), 'distributed_c10d'))"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """Waits for locks and for what other threads deliver."""
    title = "{share} of a {per} waits for another thread that holds a lock or delivers something"
    yield from waits_for(_CONDITION, "lock_wait", title, REMEDIES, workload, limits)

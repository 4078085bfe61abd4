"""The thread that makes the steps waits for the lock of Python's interpreter, which another thread
holds.

**What it looks for.** Waits of that thread inside of the functions of CPython that take the lock
(GIL). The evidence has the line that waits, and the line in which the other thread was last seen
before it gave the lock up.

**Why it matters.** One thread at a time runs Python. Operators give the lock up while they compute
and have to take it again when they end; each time another thread may hold it for 5 ms
(`sys.setswitchinterval`), or for as long as a call into a library in C takes.

**What to do.** Move what the other thread does in Python into a process (`multiprocessing`,
`concurrent.futures.ProcessPoolExecutor`), or have a library do it that gives the lock up.

**When it is wrong.** If the step needs what the other thread computes, a process may make it no
faster. Waits that are shorter than 10 ms are mostly not seen inside of, so the true cost may be
higher.

Source: CPython's `Python/ceval_gil.c`.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy
from layerscope.analyse.findings.waits import THRESHOLDS, waits_for
from layerscope.analyse.findings.workload import Workload

__all__ = ["NEEDS", "THRESHOLDS", "find"]

NEEDS = ("samples",)
REMEDIES = (
    Remedy("move the Python code of the other thread into a process: the evidence has its line"),
)


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """Waits for the GIL."""
    title = "{share} of a {per} waits for the lock of Python's interpreter (GIL)"
    yield from waits_for("state = 'gil'", "gil_wait", title, REMEDIES, workload, limits)

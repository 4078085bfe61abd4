"""The data loader waits for files on the thread that makes the steps.

**What it looks for.** The time of a step in the data loader, where most of it is spent waiting for
a disk.

**Why it matters.** A disk works by itself: the step could go on meanwhile.

**What to do.** Read ahead in workers of the loader; keep the data in memory or on a faster disk;
read few large files instead of many small ones.

**When it is wrong.** On the first epoch the system's cache is cold. Later epochs may not read at
all: look whether the steps become faster (`layerscope table steps`).

Source: the share of 5 % is that of Kineto's TensorBoard plugin.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy
from layerscope.analyse.findings.loading import READS, THRESHOLDS, loading_that
from layerscope.analyse.findings.workload import Workload

__all__ = ["NEEDS", "THRESHOLDS", "find"]

NEEDS = ("steps", "samples")
REMEDIES = (Remedy("read ahead: DataLoader(num_workers=N), or keep the data in memory"),)


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in the loader, if it mostly reads files."""
    title = "{share} of a step waits for files in the data loader"
    yield from loading_that(READS, "loader_reads_files", title, REMEDIES, workload, limits)

"""The thread that makes the steps waits for the data loader.

**What it looks for.** The time of a step in the data loader, where most of it is spent waiting: for
workers that are not ready, for a lock, for a network. Where the loader computes or reads files
instead, see `heavy_preprocessing` and `loader_reads_files`.

**Why it matters.** Nothing else of the step goes on meanwhile.

**What to do.** Load the next batches while the step runs: `num_workers` and `prefetch_factor` of
PyTorch's `DataLoader`, `num_workers` of MXNet's. With workers already, find out what they wait for:
`layerscope table waits --by thread`.

**When it is wrong.** If the source cannot deliver more than the program takes, workers only move
the wait. Where all CPUs are busy, workers take CPUs from the step: measure it with `--prove`.

Source: the share of 5 % is that of Kineto's TensorBoard plugin.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy
from layerscope.analyse.findings.loading import THRESHOLDS, WAITS, loading_that
from layerscope.analyse.findings.workload import Workload

__all__ = ["NEEDS", "THRESHOLDS", "find"]

NEEDS = ("steps", "samples")
REMEDIES = (
    Remedy("load in the background: DataLoader(num_workers=N), with N no more than idle CPUs"),
)


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in the loader, if it mostly waits."""
    title = "{share} of a step waits for the data loader"
    yield from loading_that(WAITS, "loader_wait", title, REMEDIES, workload, limits)

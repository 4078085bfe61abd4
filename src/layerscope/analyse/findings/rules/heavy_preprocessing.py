"""Samples are prepared on the thread that makes the steps, and that takes CPU time.

**What it looks for.** The time of a step in the data loader, where most of it is CPU time.

**Why it matters.** The step computes nothing meanwhile, and the next step has to wait for it.

**What to do.** Make the line that is named cheaper: do it once instead of in every epoch, on whole
batches instead of single samples, or with a library instead of Python. If CPUs are idle, load in
workers.

**When it is wrong.** Where all CPUs are busy already, workers take them from the step and it
becomes slower: measure it with `--prove`.

Source: the share of 5 % is that of Kineto's TensorBoard plugin.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy
from layerscope.analyse.findings.loading import COMPUTES, THRESHOLDS, loading_that
from layerscope.analyse.findings.workload import Workload

__all__ = ["NEEDS", "THRESHOLDS", "find"]

NEEDS = ("steps", "samples")
REMEDIES = (Remedy("prepare the samples once, or in whole batches"),)


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in the loader, if it mostly computes."""
    title = "{share} of a step prepares samples in the data loader"
    yield from loading_that(COMPUTES, "heavy_preprocessing", title, REMEDIES, workload, limits)

"""What `stacks` asks of samples, whether our sampler took them or another program.

The columns of samples, by name: `at_ns`, `track`, `waker` (the track that ended the wait), `stack`
(in `Fusion.sampled`), `weight_ns`, of that `kernel_ns` in the kernel, `count`, `kind` and `state`
(places in SAMPLE_KINDS and SAMPLE_STATES), `idle`, `exact`, `rate_hz`, and `evidence` (bits of
`waiting`). NONE: not known.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct, field

from layerscope.ingest import waiting
from layerscope.ingest.frames import FrameNames
from layerscope.ingest.process import IngestedProcess
from layerscope.ingest.spans import Columns
from layerscope.ingest.stack_tree import NONE, Fusion

EVER = np.iinfo(np.int64).max
# Looked at in one go: 150 MB of memory.
MOST_ROWS = 500_000


class SampledStacks(Struct):
    """The sampled stacks of all sources: how they are cut for spans, and by stack in
    `fusion.sampled` its `evidence`: what the functions of a stack tell of a wait.
    """

    fusion: Fusion
    frames: FrameNames
    evidence: array[int] = field(default_factory=lambda: array("h"))

    def adopt(self, parent: np.ndarray, frame: np.ndarray, depth: np.ndarray) -> None:
        """Begin with a whole tree of stacks, whose parents come before them."""
        self.fusion.adopt(parent, frame, depth)
        self.evidence.frombytes(bytes(2 * len(parent)))

    def push(self, around: int, frame: int, is_outer: bool, evidence: int) -> int:
        """The stack `around` with one frame more. `is_outer`: spans lie inside of the frame.
        `evidence`: of the frame alone.
        """
        outer = self.fusion.outer
        stack = self.fusion.sampled.push(around, frame)
        if stack == len(outer):
            inherited = outer[around] if around >= 0 else NONE
            outer.append(stack if is_outer else inherited)
            of_around = self.evidence[around] if around >= 0 else 0
            self.evidence.append(waiting.deeper(of_around, evidence))
        return stack


class SampleSource(Protocol):
    """Samples that are taken out by process, as far as they are known."""

    def advance(self) -> None:
        """Read what is new."""

    def known_until_ns(self) -> int:
        """The time of the run before which no more samples will come."""

    def find_processes(self, processes: Sequence[IngestedProcess]) -> None:
        """Which processes of the recording its own are."""

    def take(self, until_ns: dict[int, int]) -> Iterator[tuple[int, np.ndarray]]:
        """By process of the recording its samples from before a time; they are taken out."""

    def columns(self, rows: np.ndarray, process: IngestedProcess) -> Columns:
        """The columns of such samples of `process`, but for what only names tell."""

    def name(self) -> None:
        """Name the functions on the stacks that were seen so far."""

    def with_names(self, columns: Columns) -> Columns:
        """All columns, once `name` was called after the samples were taken out."""

"""What `stacks` asks of samples, whether our sampler took them or another program.

The columns of samples, by name: `at_ns`, `track`, `waker` (the track that ended the wait), `stack`
(in `Fusion.sampled`), `weight_ns`, of that `kernel_ns` in the kernel, `count`, `kind` and `state`
(places in SAMPLE_KINDS and SAMPLE_STATES), `idle`, `exact`, `rate_hz`, and `evidence` (bits of
`waiting`). NONE: not known.
"""

from __future__ import annotations

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
    evidence: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def adopt(self, parent: np.ndarray, frame: np.ndarray, depth: np.ndarray) -> None:
        """Begin with a whole tree of stacks, whose parents come before them."""
        self.fusion.adopt(parent, frame, depth)
        self.evidence = np.zeros(len(parent), np.int32)

    def push_rows(
        self,
        around: np.ndarray,
        frame: np.ndarray,
        is_outer: np.ndarray,
        evidence: np.ndarray,
    ) -> np.ndarray:
        """The stacks `around` with one frame more, as `StackNodes.push_rows` has them. `is_outer`:
        spans lie inside of the frame. `evidence`: of the frame alone.
        """
        tree, known = self.fusion.sampled, self.fusion.sampled.count
        # Functions of the kernel that have no names are one frame.
        found = tree.push_rows(around, frame, self.frames.kernel)
        _, first = np.unique(np.append(np.arange(known), found), return_index=True)
        row = first[known:] - known  # of each new stack
        outer, told = self.fusion.outer.tolist(), self.evidence.tolist()
        deeper: dict[tuple[int, int], int] = {}  # there are few different ones
        parent = tree.parent[known:].tolist()
        own = zip(parent, is_outer[row].tolist(), evidence[row].tolist(), strict=True)
        for stack, (of, is_cut, bits) in enumerate(own, known):
            outer.append(stack if is_cut else outer[of] if of >= 0 else NONE)
            both = (told[of] if of >= 0 else 0, bits)
            if both not in deeper:
                deeper[both] = waiting.deeper(*both)
            told.append(deeper[both])
        self.fusion.outer, self.evidence = np.array(outer, np.int32), np.array(told, np.int32)
        return found


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

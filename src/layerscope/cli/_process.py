"""One recorded process on its way into the tables. Used by `_conversion` and `_small_tables`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from layerscope.cli._texts import ProcessTexts
from layerscope.collect import spool
from layerscope.collect.layers.operators import Decoder
from layerscope.store.linking import ForwardBackward
from layerscope.store.nesting import TrackNesting


@dataclass(slots=True)
class Process:
    """One raw file on its way into the tables."""

    number: int
    host: str
    reader: spool.SpoolReader
    texts: ProcessTexts
    decoder: Decoder
    rank: str = ""  # the folder of its rank, where several recordings are read as one
    tracks: dict[int, int] = field(default_factory=dict)
    nesting: dict[int, TrackNesting] = field(default_factory=dict)
    optimizers: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    has_scopes: bool = False
    pairs: ForwardBackward = field(default_factory=ForwardBackward)
    totals: dict[int, list[int]] = field(default_factory=dict)

    def spans_of(self, kind: int) -> int:
        """Number of finished spans of a kind (index into KINDS)."""
        return sum(count for key, (count, *_) in self.totals.items() if key >> 32 == kind)

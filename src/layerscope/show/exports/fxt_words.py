"""The words that records of the Fuchsia trace format are made of (`fxt.py`)."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.model.distinct import distinct
from layerscope.show.exports.trace_moments import FlowEnds

U64 = np.uint64
# A type of record, and two of events.
EVENT = 4
_FLOW_BEGIN, _FLOW_END = 8, 10
FLOW_WORDS = 3
# Lists that are looked through from end to end for members without a number.
_FEW = 1 << 10


def header(kind: int, words: int, more: int = 0) -> int:
    """The first word of a record of so many words."""
    size = words << 4
    return kind | size | more


class MemberNumbers(Struct):
    """Numbers for the members of some list, which the file knows by them until they run out."""

    of: np.ndarray = field(default_factory=lambda: np.zeros(0, U64))

    def wanting(self, codes: np.ndarray, count: int) -> np.ndarray:
        """Which of `count` members are used by `codes` and have no number. Code -1 is nothing."""
        missing = count - len(self.of)
        if missing > 0:
            self.of = np.append(self.of, np.zeros(missing, U64))
        are_known = count < _FEW and self.of[:count].all()
        if not count or are_known:
            return np.zeros(0, np.intp)
        codes = short(codes)
        numbers = self.of.take(codes, mode="clip")
        unknown = codes[numbers == 0]
        unknown = unknown[unknown >= 0]
        return distinct(unknown) if len(unknown) else unknown

    def words(self, codes: np.ndarray, shift: int, more: int | np.uint64 = 0) -> np.ndarray:
        """The number of every code as a part of a word, of all codes if they are one. Where it has
        none, anything.
        """
        return (self.of << U64(shift) | U64(more)).take(short(codes), mode="clip")


def short(column: np.ndarray) -> np.ndarray:
    """A column that is one value, seen again and again, as that value: it counts for every row."""
    return column[:1] if column.strides == (0,) else column


class SpanArgument(Struct, frozen=True):
    """An argument of the spans of a block: which of them have it, and its words."""

    has: np.ndarray
    words: list[np.ndarray | np.uint64]


class FlowWords(Struct, frozen=True):
    """The ends of flows in a block by row: the number of the flow, the event, and how many stand
    before it in the row.

    `most`: how many a row has at most.
    """

    row: np.ndarray
    flow: np.ndarray
    event: np.ndarray
    rank: np.ndarray
    most: int

    @classmethod
    def of(cls, flows: list[FlowEnds]) -> FlowWords:
        """Begins and ends together; of one row the begins first."""
        row = np.concatenate([ends.row for ends in flows])
        flow = np.concatenate([ends.flow for ends in flows])
        size = FLOW_WORDS << 4
        kinds = [EVENT | kind << 16 | size for kind in (_FLOW_BEGIN, _FLOW_END)]
        counts = [len(ends.row) for ends in flows]
        event = np.repeat(np.array(kinds, U64), counts)
        order = np.argsort(row, kind="stable")
        row = row[order]
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        most = int(rank.max(initial=-1)) + 1
        return cls(row, flow[order], event[order], rank, most)

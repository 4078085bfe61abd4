"""Which calls of a program are its steps, where it does not say so itself: those of the operator
that takes most, with what it asks for. Used by `profiles` and `followed_segments`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.model.layers import KINDS
from layerscope.sources.raw.late_spans import LateSpans

_FUNCTION = KINDS.index("function")
# Fewer calls of a function than these are no loop.
_FEWEST_CALLS = 5
# So many of its calls may have compiled it.
_COMPILING = 3


class _LoopCalls(Struct):
    """The calls of one operator that lie in no call of another one."""

    count: int = 0
    total_ns: int = 0
    executed_ns: int = 0
    longest_ns: list[int] = field(default_factory=list)

    def add(self, dur_ns: np.ndarray) -> None:
        """Take in more of them."""
        self.count += len(dur_ns)
        self.total_ns += int(dur_ns.sum())
        longest = sorted([*self.longest_ns, *np.sort(dur_ns)[-_COMPILING:].tolist()])
        self.longest_ns = longest[-_COMPILING:]


class Loops(Struct):
    """The operators of one process each call of which may begin a step, as far as they are
    known.
    """

    _told: str = ""
    _calls: dict[str, _LoopCalls] = field(default_factory=dict)

    def add(self, spans: LateSpans) -> None:
        """Take in what came next."""
        self._told = self._told or spans.step_mark
        if not spans.calls:
            return
        names = [code for code, text in enumerate(spans.texts) if text in spans.calls]
        is_call = (spans.kind == _FUNCTION) & np.isin(spans.name, names)
        rows = _outermost(spans, np.flatnonzero(is_call))
        dur_ns = (spans.end_ns - spans.start_ns)[rows]
        for code in names:
            of_call = dur_ns[spans.name[rows] == code]
            known = self._calls.setdefault(spans.texts[code], _LoopCalls())
            known.add(of_call)
            known.executed_ns += spans.calls[spans.texts[code]]

    @property
    def step_mark(self) -> str:
        """What the program calls its steps; else the operator with the most time, without its
        longest calls, some of which may have compiled it; empty: none was called often.
        """
        if self._told:
            return self._told
        best, most_ns = "", -1
        for call, known in sorted(self._calls.items()):
            spent_ns = known.total_ns - sum(known.longest_ns) + known.executed_ns
            if known.count >= _FEWEST_CALLS and spent_ns > most_ns:
                best, most_ns = call, spent_ns
        return best


def _outermost(spans: LateSpans, rows: np.ndarray) -> np.ndarray:
    """Those of the rows that lie in no other one of their track."""
    track = spans.track[rows]
    depth = spans.depth[rows]
    order = np.lexsort((depth, spans.start_ns[rows], track))
    rows = rows[order]
    track = track[order]
    found = []
    for number in np.unique(track).tolist():
        mine = rows[track == number]
        begins_ns = spans.start_ns[mine]
        latest_ns = np.maximum.accumulate(spans.end_ns[mine])
        is_outer = np.ones(len(mine), np.bool_)
        is_outer[1:] = begins_ns[1:] >= latest_ns[:-1]
        found.append(mine[is_outer])
    return np.concatenate([rows[:0], *found])

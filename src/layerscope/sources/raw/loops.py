"""Which calls of a program are its steps, where it does not say so itself: those of the operator
with the most time. Used by `profiles` and `followed_segments`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.model.layers import KINDS
from layerscope.sources.raw.late_spans import LateSpans

_FUNCTION = KINDS.index("function")
# Fewer calls of a function than these are no loop.
_FEWEST_CALLS = 5


class _LoopCalls(Struct):
    """The calls of one operator."""

    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0


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
        functions = np.flatnonzero(spans.kind == _FUNCTION)
        name = spans.name[functions]
        dur_ns = (spans.end_ns - spans.start_ns)[functions]
        for call in spans.calls:
            codes = [code for code, text in enumerate(spans.texts) if text == call]
            of_call = dur_ns[np.isin(name, codes)]
            known = self._calls.setdefault(call, _LoopCalls())
            known.count += len(of_call)
            known.total_ns += int(of_call.sum())
            known.longest_ns = max(known.longest_ns, int(of_call.max(initial=0)))

    @property
    def step_mark(self) -> str:
        """What the program calls its steps; else the operator with the most time, without its
        longest call, which may have compiled it; empty: none was called often.
        """
        if self._told:
            return self._told
        best, most_ns = "", -1
        for call, known in sorted(self._calls.items()):
            spent_ns = known.total_ns - known.longest_ns
            if known.count >= _FEWEST_CALLS and spent_ns > most_ns:
                best, most_ns = call, spent_ns
        return best

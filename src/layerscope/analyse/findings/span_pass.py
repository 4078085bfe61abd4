"""What the findings want of millions of spans, read in one pass: the sums of those that are alike,
and the rows of the few that have a say of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layerscope.analyse.columns import dictionary_of, has_name
from layerscope.analyse.span_groups import COMMON, SpanGroups, grouped
from layerscope.model.distinct import distinct
from layerscope.recording.arrow_columns import arrow_array

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

Arrays = dict[str, NDArray[Any]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_NAMES = ("layer", "kind", "name", "phase")
_KEPT = ("span", "track", "start_ns", "dur_ns", "self_ns", "module", "step")
# Of steps there are few, and what ends one is asked for by itself.
_KIND_KEPT = "optimizer"


class SpanPass:
    """Sums of the spans of measured steps, or of all where there are none, and some of the spans
    themselves: primitives, the operators that called them, and calls of optimizers.

    Give it all pieces of the spans, by `add` or by `read`.
    """

    # Which columns a piece must have.
    columns = ("span", "track", "start_ns", "dur_ns", "self_ns", "module", "step", *_NAMES)

    def __init__(self, reader: Reader) -> None:
        self.is_read = False
        self._reader = reader
        self._names: Arrays = {}
        self._sums: list[Arrays] = []
        self._kept: list[Arrays] = []
        primitives = reader.arrays("primitives", ["span", "operator"])
        wanted = distinct(np.concatenate([primitives["span"], primitives["operator"]]))
        self._wanted: Ints = wanted[wanted >= 0].astype(np.int64)

    def read(self, steps: Ints | None) -> None:
        """Read the spans; `steps`: the numbers of the measured ones."""
        is_measured = np.ones(1, np.bool_)
        if steps is not None:
            # The last place is of all later steps, and of no step, which is -1.
            is_measured = np.zeros(int(steps.max(initial=-1)) + 2, np.bool_)
            is_measured[steps] = True
        last = len(is_measured) - 1
        for spans in self._reader.pieces("spans", list(self.columns)):
            measured = is_measured[np.minimum(spans["step"], last)]
            spans["weight"] = np.ones(len(measured), np.int32)
            self.add(spans, grouped(spans, measured, measured))
        self.is_read = True

    def add(self, spans: Arrays, groups: SpanGroups) -> None:
        """A piece of the spans, which are in these groups."""
        for name in _NAMES:
            self._names[name] = spans[f"{name}.names"]
        chosen = groups.measured
        sums = {name: groups.columns[name][chosen] for name in COMMON}
        sums |= {"count": groups.calls[chosen], "self_ns": groups.self_ns[chosen]}
        sums["dur_ns"] = groups.dur_ns[chosen]
        self._sums.append(sums)
        is_kept = self._is_wanted(spans["span"])
        is_kept |= has_name(spans, "kind", _KIND_KEPT)
        rows = np.flatnonzero(is_kept)
        self._kept.append({name: spans[name][rows] for name in (*_KEPT, *_NAMES)})

    def _is_wanted(self, span: Ints) -> Bools:
        """Which of these are wanted for themselves."""
        low, high = span.min(initial=np.iinfo(np.int64).max), span.max(initial=-1)
        begin, end = np.searchsorted(self._wanted, [low, high + 1])
        found: Bools = np.isin(span, self._wanted[begin:end])
        return found

    def sums(self) -> pa.Table:
        """A row for spans that are alike: COMMON, `count`, `self_ns`, `dur_ns`. A row of another
        piece may be about the same.
        """
        return self._table(self._sums, (*COMMON, "count", "self_ns", "dur_ns"))

    def kept(self) -> pa.Table:
        """The rows of those that are wanted for themselves."""
        return self._table(self._kept, (*_KEPT, *_NAMES))

    def _table(self, pieces: list[Arrays], names: Iterable[str]) -> pa.Table:
        columns: dict[str, Any] = {}
        for name in names:
            found = [piece[name] for piece in pieces]
            values = np.concatenate(found) if found else np.zeros(0, np.int64)
            columns[name] = self._column(name, values)
        return pa.table(columns)

    def _column(self, name: str, values: NDArray[Any]) -> Any:
        if name in _NAMES:
            texts = self._names.get(name, np.zeros(0, object))
            return dictionary_of(values, texts.tolist())
        if name in ("module", "step"):
            return arrow_array(values, values >= 0)
        return arrow_array(values)

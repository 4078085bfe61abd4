"""Which module the backward pass of an operator belongs to: that of the operator.

Definition. Every backward function that lies in no other one is a stretch of its track. The stretch belongs to the
module of the forward operator that it, or a backward function in it, is linked to (`store.linking`). Adding up a
gradient (`AccumulateGrad`) has no forward operator: the engine does it right after the function that produced the
gradient, so it belongs to the module of the stretch before. Spans in a stretch inherit its module, unless a module
was called inside it, as checkpointing does when it runs the forward pass again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

NO_MODULE = -1


@dataclass(slots=True)
class _Stretches:
    """The outermost backward functions of one track, by start."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    recorded: np.ndarray  # the module that was open when it started
    module: np.ndarray  # the module it belongs to


@dataclass(slots=True)
class BackwardModules:
    """Collects the backward functions of a recording by track; `inherit` hands their modules on."""

    _parts: dict[int, list[tuple[np.ndarray, ...]]] = field(default_factory=dict)
    _stretches: dict[int, _Stretches] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def add(
        self, track: int, span: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, module: np.ndarray,
        accumulates: np.ndarray,
    ) -> None:  # fmt: skip
        """Backward functions of a track; `module`: what was open when they started; `accumulates`: AccumulateGrad."""
        self._parts.setdefault(track, []).append((span, start_ns, end_ns, module, accumulates))

    def settle(self, backward: np.ndarray, module: np.ndarray) -> None:
        """Every backward function was added; `backward` are those with a forward operator, in `module`."""
        order = np.argsort(backward, kind="stable")
        backward, module = backward[order], module[order]
        for track, parts in self._parts.items():
            columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
            by_start = np.lexsort((-columns[2], columns[1]))
            span, start_ns, end_ns, recorded, accumulates = (column[by_start] for column in columns)
            # Outermost: it starts when everything before it has ended.
            ended = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end_ns)[:-1]))
            outer = np.flatnonzero(start_ns >= ended)
            of = np.maximum(np.searchsorted(outer, np.arange(len(span)), side="right") - 1, 0)
            found = np.full(len(outer), NO_MODULE, np.int32)
            if len(backward):
                at = np.minimum(np.searchsorted(backward, span), len(backward) - 1)
                linked = np.flatnonzero((backward[at] == span) & (module[at] != NO_MODULE))[::-1]
                found[of[linked]] = module[at[linked]]  # the first of a stretch wins
            self._stretches[track] = _Stretches(
                start_ns[outer], end_ns[outer], recorded[outer], _carried(found, accumulates[outer])
            )
        self._parts.clear()

    def inherit(self, columns: dict[str, np.ndarray]) -> None:
        """Give spans (`track`, `start_ns`, `module`) in the backward pass the module they belong to, in place."""
        for track, stretches in self._stretches.items():
            rows = np.flatnonzero(columns["track"] == track)
            if not len(rows) or not len(stretches.start_ns):
                continue
            start_ns = columns["start_ns"][rows]
            at = np.searchsorted(stretches.start_ns, start_ns, side="right") - 1
            inside = (at >= 0) & (start_ns <= stretches.end_ns[at])
            inside &= (columns["module"][rows] == stretches.recorded[at]) & (stretches.module[at] != NO_MODULE)
            columns["module"][rows[inside]] = stretches.module[at[inside]]


def _carried(module: np.ndarray, accumulates: np.ndarray) -> np.ndarray:
    """The modules of stretches; one that adds up a gradient has that of the last one before it that does not."""
    source = np.where(accumulates, -1, np.arange(len(module)))
    source = np.maximum.accumulate(source) if len(source) else source
    carried = np.where(source >= 0, module[source], NO_MODULE)
    chosen: np.ndarray = np.where(accumulates, carried, module)
    return chosen

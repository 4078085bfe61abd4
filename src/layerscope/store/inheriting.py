"""Which module the backward pass of an operator belongs to: that of the operator.

Definition. Every backward function is a stretch of its track. It belongs to the module of the forward operator that
it, or the first backward function in it that has one, is linked to (`store.linking`). Adding up a gradient
(`AccumulateGrad`) has no forward operator: the engine does it right after the function that produced the gradient, so
it belongs to the module of the stretch before. A span inherits the module of the innermost stretch around it that has
one, unless a module was called in between, as checkpointing does when it runs the forward pass again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

NO_MODULE = -1
_UNKNOWN = -2  # no forward operator is known, where NO_MODULE is one that ran in no module


@dataclass(slots=True)
class _Stretches:
    """Backward functions of one track that lie in equally many others, by start."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    recorded: np.ndarray  # the module that was open when it started
    module: np.ndarray  # the module it belongs to


@dataclass(slots=True)
class BackwardModules:
    """Collects the backward functions of a recording by track; `inherit` hands their modules on."""

    _parts: dict[int, list[tuple[np.ndarray, ...]]] = field(default_factory=dict)
    _stretches: dict[int, list[_Stretches]] = field(default_factory=dict)

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
            own = np.full(len(columns[0]), _UNKNOWN, np.int32)
            if len(backward):
                at = np.minimum(np.searchsorted(backward, columns[0]), len(backward) - 1)
                linked = backward[at] == columns[0]
                own[linked] = module[at[linked]]
            by_start = np.lexsort((-columns[2], columns[1]))
            self._stretches[track] = _levels(*(column[by_start] for column in (*columns[1:], own)))
        self._parts.clear()

    def inherit(self, columns: dict[str, np.ndarray]) -> None:
        """Give spans (`track`, `start_ns`, `module`) in the backward pass the module they belong to, in place."""
        for track, levels in self._stretches.items():
            rows = np.flatnonzero(columns["track"] == track)
            start_ns, recorded = columns["start_ns"][rows], columns["module"][rows]
            for stretches in levels if len(rows) else ():
                at = np.searchsorted(stretches.start_ns, start_ns, side="right") - 1
                inside = (at >= 0) & (start_ns <= stretches.end_ns[at]) & (stretches.module[at] != _UNKNOWN)
                inside &= recorded == stretches.recorded[at]
                columns["module"][rows[inside]] = stretches.module[at[inside]]


def _levels(
    start_ns: np.ndarray, end_ns: np.ndarray, recorded: np.ndarray, accumulates: np.ndarray, own: np.ndarray
) -> list[_Stretches]:
    """The outermost backward functions of a track, those directly in them, and so on; `own`: of what they link to."""
    levels = []
    while len(start_ns):
        # Outermost: it starts when everything before it has ended.
        ended = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end_ns)[:-1]))
        is_outer = start_ns >= ended
        outer = np.flatnonzero(is_outer)
        of = np.searchsorted(outer, np.arange(len(start_ns)), side="right") - 1
        found = np.full(len(outer), _UNKNOWN, np.int32)
        linked = np.flatnonzero(own != _UNKNOWN)[::-1]
        found[of[linked]] = own[linked]  # the first of a stretch wins
        module = _carried(found, accumulates[outer])
        levels.append(_Stretches(start_ns[outer], end_ns[outer], recorded[outer], module))
        inner = ~is_outer
        start_ns, end_ns, recorded, accumulates, own = (
            column[inner] for column in (start_ns, end_ns, recorded, accumulates, own)
        )
    return levels


def _carried(module: np.ndarray, accumulates: np.ndarray) -> np.ndarray:
    """The modules of stretches; one that adds up a gradient has that of the last one before it that does not."""
    source = np.maximum.accumulate(np.where(accumulates, -1, np.arange(len(module))))
    carried = np.where(source >= 0, module[source], _UNKNOWN)
    chosen: np.ndarray = np.where(accumulates, carried, module)
    return chosen

"""Where the steps of a process end, as far as that is known while it runs.

The rules of `ingest.rules` decide afterwards, with all spans of an epoch. While they come in there
are, the strongest first: `mark`, the program's own marks and the spans of --step-mark; `optimizer`,
the ends of steps of the first optimizer; `loader`, the ends of waits of the first loader;
`request`, the ends of outermost calls of modules on the first thread that makes them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layerscope.ingest.spans import MODULE
from layerscope.model.frameworks import step_prefixes
from layerscope.model.layers import KINDS
from layerscope.model.live import STEP_RULES

_OPTIMIZER, _LOADER = KINDS.index("optimizer"), KINDS.index("loader")
_MARK = STEP_RULES[0]
Ends = dict[str, np.ndarray]


class StepEnds:
    """Collects the ends of steps by rule until they are taken. `named`: what is a step, empty for
    the rules.
    """

    def __init__(self, named: str = "") -> None:
        self._named = named
        self._marks = 0  # so many have been taken
        self._track: dict[str, int] = {}  # by rule the thread of the first one
        self._first: dict[str, tuple[int, int]] = {}  # by rule the name and the optimizer of it
        self._new: dict[str, list[np.ndarray]] = {}

    def take(self) -> Ends:
        """What has come since the last call: times of the run by rule."""
        new, self._new = self._new, {}
        return {rule: np.concatenate(parts) for rule, parts in new.items()}

    def add_marks(self, tracks: np.ndarray, records: np.ndarray) -> None:
        """Take in all marks of the program so far; those of the thread of the first one count."""
        before = self._marks
        self._marks = len(records)
        if before == len(records):
            return
        track = self._track.setdefault(_MARK, int(tracks[0]))
        at_ns = records["start"][before:].astype(np.int64)
        mine = np.flatnonzero(tracks[before:] == track)
        self._add(_MARK, track, mine, at_ns)

    def add_spans(
        self, track: int, rows: np.ndarray, kind: np.ndarray, end: np.ndarray, names: list[str]
    ) -> None:
        """Take in spans of a thread that have ended."""
        if self._named:
            every = np.arange(len(rows))
            self._add(_MARK, track, _called(rows, every, names, self._is_named), end)
            return
        optimizers = np.flatnonzero(kind == _OPTIMIZER)
        if len(optimizers):
            chosen = _called(rows, optimizers, names, _is_step_of_optimizer)
            self._add("optimizer", track, self._of_first("optimizer", rows, chosen), end)
        loaders = np.flatnonzero(kind == _LOADER)
        if len(loaders):
            self._add("loader", track, self._of_first("loader", rows, loaders), end)
        modules = np.flatnonzero(kind == MODULE)
        modules = modules[rows["seq"][modules] == 0]
        if len(modules):
            self._add("request", track, self._of_first("request", rows, modules), end)

    def add_requests(self, end: np.ndarray) -> None:
        """Take in requests that were answered."""
        self._new.setdefault("served", []).append(end)

    def _is_named(self, name: str) -> bool:
        return name == self._named

    def _add(self, rule: str, track: int, chosen: np.ndarray, end: np.ndarray) -> None:
        """Those of the thread of the first one count."""
        if not len(chosen):
            return
        first = self._track.setdefault(rule, track)
        if first == track:
            self._new.setdefault(rule, []).append(end[chosen])

    def _of_first(self, rule: str, rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Those of `chosen` that are of the same name and optimizer as the first of the rule."""
        if not len(chosen):
            return chosen
        first = rows[chosen[0]]
        name, optimizer = self._first.setdefault(
            rule, (int(first["name"]), int(first["optimizer"]))
        )
        is_same = rows["name"][chosen] == name
        same: np.ndarray = chosen[is_same & (rows["optimizer"][chosen] == optimizer)]
        return same


def _is_step_of_optimizer(name: str) -> bool:
    return name.startswith(step_prefixes())


def _called(
    rows: np.ndarray, some: np.ndarray, names: list[str], is_wanted: Callable[[str], bool]
) -> np.ndarray:
    """Which of `some` spans have a name that is wanted."""
    numbers, inverse = np.unique(rows["name"][some], return_inverse=True)
    wanted = []
    for number in numbers.tolist():
        text = names[number] if number < len(names) else ""
        name, _, _ = text.partition("\n")
        wanted.append(is_wanted(name))
    return some[np.array(wanted, np.bool_)[inverse]]

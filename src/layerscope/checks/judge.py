"""Runs the checks: those whose files are in `machine`, what matters most to speed first."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Protocol, cast

from layerscope.checks import machine
from layerscope.checks.check import ERROR, NOTE, OK, STATES, UNSEEN, WARNING, Check, Seen

# How bad a state is; what is not seen cannot fail.
_BADNESS = {OK: 0, UNSEEN: 0, NOTE: 1, WARNING: 2, ERROR: 3}
_WORDS = {ERROR: "errors", WARNING: "warnings", NOTE: "notes", OK: "ok", UNSEEN: "unseen"}


class CheckModule(Protocol):
    """What a file of the folder `machine` provides."""

    __name__: str
    ORDER: int

    def check(self, seen: Seen) -> Iterator[Check]:
        """Its judgements; none where there is nothing to judge."""


def modules() -> list[CheckModule]:
    """The checks in their order."""
    found = []
    for entry in pkgutil.iter_modules(machine.__path__):
        module = importlib.import_module(f"{machine.__name__}.{entry.name}")
        found.append(cast(CheckModule, module))
    return sorted(found, key=lambda module: (module.ORDER, module.__name__))


def judged(seen: Seen) -> list[Check]:
    """What every check says."""
    found: list[Check] = []
    for module in modules():
        found += module.check(seen)
    return found


def worst_first(found: Iterable[Check]) -> list[Check]:
    """Errors, warnings, notes, what is well, and what is not seen; each in the order of the
    checks.
    """

    def rank(check: Check) -> tuple[bool, int]:
        is_unseen = check.state == UNSEEN
        badness = _BADNESS[check.state]
        return is_unseen, -badness

    return sorted(found, key=rank)


def fails(found: Iterable[Check], level: str) -> bool:
    """Whether any is as bad as `level` or worse."""
    limit = _BADNESS[level]
    states = {check.state for check in found}
    return any(_BADNESS[state] >= limit for state in states)


def totals(found: Iterable[Check]) -> dict[str, int]:
    """How many checks are in each state."""
    counts = dict.fromkeys(STATES, 0)
    for check in found:
        counts[check.state] += 1
    return counts


def count_sentence(found: Iterable[Check]) -> str:
    """How many there are of each, worst first: "2 warnings, 1 note, 14 ok, 3 unseen"."""
    counts = totals(found)
    parts = []
    for state, plural in _WORDS.items():
        count = counts[state]
        if count:
            word = state if count == 1 else plural
            parts.append(f"{count} {word}")
    return ", ".join(parts)

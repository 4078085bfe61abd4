"""Which operator a submission became, and when each operator was submitted. Used by `conversion`
and `epochs`.

The engine of a framework executes an operator later, on another thread. A submission and what was
submitted have a number of the process in common. Step and phase of the operator are those of the
moment at which it was submitted.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.ingest.spans import FUNCTION, SUBMIT

# Of those that have not found each other, the newest are kept: what is older was lost.
MOST_ALONE = 2_000_000


def asked_ns(rows: np.ndarray) -> np.ndarray:
    """When each of these spans of a track was asked for: its start, but of an operator that was
    submitted, and of what ran in it, the time of the submission.
    """
    start_ns = rows["start"]
    submitted = np.flatnonzero((rows["kind"] == FUNCTION) & (rows["origin"] != 0))
    if not len(submitted):
        return start_ns
    operators = rows[submitted[np.argsort(start_ns[submitted], kind="stable")]]
    before = np.searchsorted(operators["start"], start_ns, side="right") - 1
    around = operators[np.maximum(before, 0)]
    is_inside = (before >= 0) & (rows["end"] <= around["end"])
    return np.where(is_inside, around["origin"], start_ns)


def _none() -> np.ndarray:
    return np.zeros((0, 2), np.int64)


class Submissions(Struct):
    """Of one process. Pairs of numbers and keys of spans, and of keys and times."""

    _submitted: np.ndarray = field(default_factory=_none)
    _executed: np.ndarray = field(default_factory=_none)
    _times: np.ndarray = field(default_factory=_none)  # by key

    def add(
        self, kind: np.ndarray, number: np.ndarray, key: np.ndarray, submitted_ns: np.ndarray
    ) -> None:
        """Take in spans; `submitted_ns`: of operators that were submitted, when."""
        submitted = np.flatnonzero(kind == SUBMIT)
        if len(submitted):
            pairs = np.column_stack([number[submitted], key[submitted]])
            self._submitted = np.concatenate([self._submitted, pairs])
        executed = np.flatnonzero((kind == FUNCTION) & (submitted_ns != 0))
        if len(executed):
            pairs = np.column_stack([number[executed], key[executed]])
            self._executed = np.concatenate([self._executed, pairs])
            times = np.column_stack([key[executed], submitted_ns[executed]])
            self._times = np.concatenate([self._times, times])

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys of submissions, and of the operators that they became; each is given once."""
        _, submitted, executed = np.intersect1d(
            self._submitted[:, 0], self._executed[:, 0], return_indices=True
        )
        keys = self._submitted[submitted, 1], self._executed[executed, 1]
        self._submitted = np.delete(self._submitted, submitted, axis=0)[-MOST_ALONE:]
        self._executed = np.delete(self._executed, executed, axis=0)[-MOST_ALONE:]
        return keys

    def when(self, key: np.ndarray, start_ns: np.ndarray) -> np.ndarray:
        """When the spans with these keys were submitted; else their start."""
        if not len(self._times):
            return start_ns
        # A span that was open when something in it ended got its key early.
        self._times = self._times[np.argsort(self._times[:, 0], kind="stable")]
        place = np.searchsorted(self._times[:, 0], key)
        place = np.minimum(place, len(self._times) - 1)
        is_known = self._times[place, 0] == key
        return np.where(is_known, self._times[place, 1], start_ns)

    def forget(self, key: int) -> None:
        """Nobody will ask for the times of spans before this one."""
        if len(self._times):
            self._times = self._times[self._times[:, 0] >= key]

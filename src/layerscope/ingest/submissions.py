"""Which operator a submission became, and when each operator was submitted. Used by `conversion`
and `epochs`.

The engine of a framework executes an operator later, on another thread. A submission and what was
submitted have a number of the process in common. Step and phase of the operator are those of the
thread that submitted it, at the moment at which it did. An outermost call of a module that answers
a request belongs to that, which has a track of its own, and so does what a thread of a session
executes for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct, field

from layerscope.ingest.phases import RANGE
from layerscope.ingest.spans import FUNCTION, MODULE, SUBMIT

# Of those that have not found each other, the newest are kept: what is older was lost.
MOST_ALONE = 2_000_000
_NOWHERE = np.zeros(0, np.intp)


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


def _no_askers() -> np.ndarray:
    return np.zeros((0, 3), np.int64)


class Submissions(Struct):
    """Of one process. Pairs of numbers and keys of spans; and of each operator when it was
    submitted, and on which track.
    """

    _submitted: np.ndarray = field(default_factory=_none)
    _executed: np.ndarray = field(default_factory=_none)
    _asked: np.ndarray = field(default_factory=_no_askers)  # keys, times, tracks

    def add(
        self,
        kind: np.ndarray,
        number: np.ndarray,
        key: np.ndarray,
        asked: tuple[np.ndarray, np.ndarray],
        track_key: Callable[[int], int],
    ) -> None:
        """Take in spans. `asked`: of operators that were submitted, when, and the number of the
        track that did so, whose key `track_key` knows, 0: not known.
        """
        submitted_ns, submitter = asked
        submitted = np.flatnonzero(kind == SUBMIT)
        if len(submitted):
            pairs = np.column_stack([number[submitted], key[submitted]])
            self._submitted = np.concatenate([self._submitted, pairs])
        executed = np.flatnonzero((kind == FUNCTION) & (submitted_ns != 0) & (number >= 0))
        if len(executed):
            pairs = np.column_stack([number[executed], key[executed]])
            self._executed = np.concatenate([self._executed, pairs])
        executed = np.flatnonzero((kind == FUNCTION) | (kind == RANGE) | (kind == MODULE))
        executed = executed[submitted_ns[executed] != 0]
        if len(executed):
            numbers, place = np.unique(submitter[executed], return_inverse=True)
            keys = [track_key(one) if one else -1 for one in numbers.tolist()]
            track = np.array(keys, np.int64)[place]
            rows = np.column_stack([key[executed], submitted_ns[executed], track])
            self._asked = np.concatenate([self._asked, rows])

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys of submissions, and of the operators that they became; each is given once."""
        submitted, executed = self._submitted, self._executed
        first = second = _NOWHERE
        if len(submitted) and len(executed):
            numbers = submitted[:, 0], executed[:, 0]
            _, first, second = np.intersect1d(*numbers, return_indices=True)
        keys = submitted[first, 1], executed[second, 1]
        self._submitted = np.delete(submitted, first, axis=0)[-MOST_ALONE:]
        self._executed = np.delete(executed, second, axis=0)[-MOST_ALONE:]
        return keys

    def asked(
        self, key: np.ndarray, start_ns: np.ndarray, track: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """When and on which track the spans with these keys were submitted; else their start and
        their own track.
        """
        if not len(self._asked):
            return start_ns, track
        # A span that was open when something in it ended got its key early.
        self._asked = self._asked[np.argsort(self._asked[:, 0], kind="stable")]
        keys, when_ns, of_track = self._asked.T
        place = np.searchsorted(keys, key)
        place = np.minimum(place, len(keys) - 1)
        is_known = keys[place] == key
        has_track = is_known & (of_track[place] >= 0)
        asked_ns = np.where(is_known, when_ns[place], start_ns)
        return asked_ns, np.where(has_track, of_track[place], track)

    def forget(self, key: int) -> None:
        """Nobody will ask for what is known of spans before this one."""
        if len(self._asked):
            self._asked = self._asked[self._asked[:, 0] >= key]

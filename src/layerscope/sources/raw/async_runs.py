"""Runs that another thread executes than the one that asks for them, which is not held up by them:
which spans of a profile are in which of them. Used by `profiles`.

The agent has each as a call of a module on a track of requests, from the call to the callback, with
the thread that calls back. That thread has executed it right before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.layers import KINDS
from layerscope.model.stored_json import decoded
from layerscope.sources.raw.open_operators import MARGIN_NS, RecordedProcess

_MODULE = KINDS.index("module")


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


class ThreadRuns(Struct):
    """Those of one thread, in the order of their ends; `module`: numbers of names. `asked_track`:
    of the request in which it was asked for, or else its own.
    """

    start_ns: np.ndarray = field(default_factory=_none)
    end_ns: np.ndarray = field(default_factory=_none)
    module: np.ndarray = field(default_factory=_none)
    asked_track: np.ndarray = field(default_factory=_none)

    @property
    def asked_ns(self) -> np.ndarray:
        """When each was asked for: behind that by what clocks are rounded by."""
        asked_ns: np.ndarray = np.minimum(self.start_ns + 2 * MARGIN_NS, self.end_ns)
        return asked_ns

    def at(self, at_ns: np.ndarray) -> np.ndarray:
        """The run that the thread executes at each of these moments, -1: none."""
        place = np.searchsorted(self.end_ns, at_ns)
        run = np.where(place < len(self.end_ns), place, -1)
        known = np.flatnonzero(run >= 0)
        is_early = self.start_ns[run[known]] > at_ns[known]
        run[known[is_early]] = -1
        return run


def async_runs(process: RecordedProcess) -> dict[int, ThreadRuns]:
    """By the number of a thread the runs that it has executed for others."""
    spans = process.spans
    told = np.flatnonzero((spans["kind"] == _MODULE) & (spans["args"] > 0))
    found = {}
    numbers, which = np.unique(spans["args"][told], return_inverse=True)
    for at, number in enumerate(numbers.tolist()):
        rows = told[which == at]
        rows = rows[np.argsort(spans["end"][rows], kind="stable")]
        asker, own = spans["submitter"][rows], spans["track"][rows]
        found[_thread(process.decoder.names[number])] = ThreadRuns(
            start_ns=spans["start"][rows],
            end_ns=spans["end"][rows],
            module=spans["name"][rows],
            asked_track=np.where(asker > 0, asker, own),
        )
    return found


def _thread(text: str) -> int:
    """The number of the thread that the arguments of a run name, -1: they name none."""
    try:
        number = decoded(text.encode(), dict[str, Any]).get("thread")
    except ValueError:
        return -1
    return number if isinstance(number, int) else -1

"""The calls of modules that ended by an exception, and the requests that failed by it.

The agent marks the moment at which an outermost call is left by an exception, which is the end of
that call. A request whose last call it is has failed; one in which the program caught it and went
on has not.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerscope.recording.reader import Reader

RAISED = "raised"


@dataclass(frozen=True, slots=True)
class Failure:
    """What calls of modules ended by: the exception, the operator that raised it (empty: none did),
    how many calls, and how many of these ended a request.
    """

    exception: str
    operator: str
    calls: int
    requests: int


@dataclass(slots=True)
class RaisedMarks:
    """Where calls were left by an exception, in order of time: when, by which one, from which
    operator.
    """

    at_ns: NDArray[np.int64]
    process: NDArray[np.int64]
    exception: list[str]
    operator: list[str]

    def ending(self, end_ns: NDArray[np.int64], process: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each stretch of time of a process, which of these ended it; -1: none did."""
        by = {
            key: at
            for at, key in enumerate(zip(self.process.tolist(), self.at_ns.tolist(), strict=True))
        }
        found = np.full(len(end_ns), -1, np.int64)
        if by:
            for at in np.flatnonzero(np.isin(end_ns, self.at_ns)).tolist():
                found[at] = by.get((int(process[at]), int(end_ns[at])), -1)
        return found

    def summed(self, of_requests: NDArray[np.int64]) -> list[Failure]:
        """The failures, most calls first; `of_requests`: which of the marks ended a request."""
        texts = list(zip(self.exception, self.operator, strict=True))
        requests = Counter(texts[at] for at in of_requests.tolist())
        return [
            Failure(*text, calls, requests[text]) for text, calls in Counter(texts).most_common()
        ]


def raised_marks(reader: Reader) -> RaisedMarks:
    """Where calls were left by an exception."""
    none = np.zeros(0, np.int64)
    marks = reader.arrays("marks", ["track", "at_ns", "kind", "name", "args"])
    chosen = (
        np.flatnonzero(marks["kind.names"][marks["kind"]] == RAISED) if len(marks["kind"]) else none
    )
    if not len(chosen):
        return RaisedMarks(none, none, [], [])
    chosen = chosen[np.argsort(marks["at_ns"][chosen], kind="stable")]
    tracks = reader.arrays("tracks", ["track", "process"])
    process_of = dict(zip(tracks["track"].tolist(), tracks["process"].tolist(), strict=True))
    args = reader.arrays("args", ["args", "json"])
    json_of = dict(zip(args["args"].tolist(), args["json"].tolist(), strict=True))
    return RaisedMarks(
        marks["at_ns"][chosen],
        np.array(
            [process_of.get(track, -1) for track in marks["track"][chosen].tolist()], np.int64
        ),
        [str(text) for text in marks["name.names"][marks["name"][chosen]].tolist()],
        [_operator(json_of.get(key, "")) for key in marks["args"][chosen].tolist()],
    )


def _operator(text: str) -> str:
    try:
        told = json.loads(text or "{}")
    except ValueError:
        return ""
    return str(told.get("operator", "")) if isinstance(told, dict) else ""

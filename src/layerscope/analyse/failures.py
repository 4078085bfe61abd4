"""The calls of modules that ended by an exception, and the requests that failed by it.

The agent marks the moment at which an outermost call is left by an exception, which is the end of
that call. A request whose last call it is has failed; one in which the program caught it and went
on has not.
"""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.columns import Columns, has_name
from layerscope.recording.reader import Reader

Int64s = NDArray[np.int64]

RAISED = "raised"


class Failure(Struct, frozen=True):
    """What calls of modules ended by: the exception, the operator that raised it (empty: none did),
    how many calls, and how many of these ended a request.
    """

    exception: str
    operator: str
    calls: int
    requests: int


class RaisedMarks(Struct):
    """Where calls were left by an exception, in order of time: when, by which one, from which
    operator.
    """

    at_ns: Int64s
    process: Int64s
    exception: list[str]
    operator: list[str]

    def ending(self, end_ns: Int64s, process: Int64s) -> Int64s:
        """For each stretch of time of a process, which of these ended it; -1: none did."""
        marks = zip(self.process.tolist(), self.at_ns.tolist(), strict=True)
        number_of = {mark: number for number, mark in enumerate(marks)}
        found = np.full(len(end_ns), -1, np.int64)
        candidates = np.flatnonzero(np.isin(end_ns, self.at_ns))
        ends = zip(process[candidates].tolist(), end_ns[candidates].tolist(), strict=True)
        for at, end in zip(candidates.tolist(), ends, strict=True):
            found[at] = number_of.get(end, -1)
        return found

    def summed(self, of_requests: Int64s) -> list[Failure]:
        """The failures, most calls first; `of_requests`: which of the marks ended a request."""
        texts = list(zip(self.exception, self.operator, strict=True))
        calls_of = Counter(texts)
        requests_of = Counter(texts[at] for at in of_requests.tolist())
        failures = []
        for text, calls in calls_of.most_common():
            exception, operator = text
            failures.append(Failure(exception, operator, calls, requests_of[text]))
        return failures


def raised_marks(reader: Reader) -> RaisedMarks:
    """Where calls were left by an exception."""
    marks = reader.arrays("marks", ["track", "at_ns", "kind", "name", "args"])
    chosen = _raised_rows(marks)
    if not len(chosen):
        none = np.zeros(0, np.int64)
        return RaisedMarks(none, none, [], [])
    tracks = reader.arrays("tracks", ["track", "process"])
    process_of = dict(zip(tracks["track"].tolist(), tracks["process"].tolist(), strict=True))
    args = reader.arrays("args", ["args", "json"])
    json_of = dict(zip(args["args"].tolist(), args["json"].tolist(), strict=True))
    processes = [process_of.get(track, -1) for track in marks["track"][chosen].tolist()]
    names = marks["name.names"][marks["name"][chosen]]
    return RaisedMarks(
        marks["at_ns"][chosen],
        np.array(processes, np.int64),
        [str(name) for name in names.tolist()],
        [_operator(json_of.get(key, "")) for key in marks["args"][chosen].tolist()],
    )


def _raised_rows(marks: Columns) -> NDArray[np.intp]:
    """The rows of marks of exceptions, in the order of time."""
    rows = np.flatnonzero(has_name(marks, "kind", RAISED))
    order = np.argsort(marks["at_ns"][rows], kind="stable")
    return rows[order]


def _operator(text: str) -> str:
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return ""
    return str(arguments.get("operator", "")) if isinstance(arguments, dict) else ""

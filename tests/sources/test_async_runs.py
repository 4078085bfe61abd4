"""Runs that a thread of a pool executes for others: which of them is executed at a moment."""

from __future__ import annotations

import numpy as np

from layerscope.sources.raw.async_runs import ThreadRuns, async_runs
from layerscope.sources.raw.decoder import Decoder
from layerscope.sources.raw.open_operators import _SPAN, RecordedProcess

MODULE = 5


def recorded(*rows: tuple[int, int, int, int, int]) -> RecordedProcess:
    """Calls of modules: start, end, number of the arguments, track, track of a request."""
    spans = np.zeros(len(rows), _SPAN)
    for at, (start, end, args, track, submitter) in enumerate(rows):
        spans[at] = (start, end, 1, args, track, 0, submitter, MODULE)
    decoder = Decoder()
    decoder.names = ["", "net", '{"thread":7}', '{"thread":8}', "no arguments"]
    return RecordedProcess(decoder, spans)


def test_a_thread_executes_a_run_right_before_it_calls_back() -> None:
    # Both were asked for at once; the second one waited for the first.
    runs = async_runs(recorded((10, 90, 2, 5, 0), (10, 50, 2, 6, 3), (0, 200, 3, 5, 0)))
    assert runs[7].at(np.array([5, 20, 50, 60, 95])).tolist() == [-1, 0, 0, 1, -1]
    assert runs[7].asked_track.tolist() == [3, 5]
    assert runs[8].at(np.array([100])).tolist() == [0]


def test_calls_on_the_thread_that_asks_are_no_such_runs() -> None:
    assert async_runs(recorded((10, 90, 0, 5, 0))) == {}
    assert list(async_runs(recorded((10, 90, 4, 5, 0)))) == [-1]
    assert ThreadRuns().at(np.array([1, 2])).tolist() == [-1, -1]

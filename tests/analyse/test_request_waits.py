"""How long a request waits while the model answers others."""

from __future__ import annotations

import numpy as np

from layerscope.analyse.request_waits import _busy_until, _together


def test_stretches_in_which_calls_overlap_count_once() -> None:
    start, end = np.array([50, 0, 5, 30]), np.array([60, 10, 20, 40])
    start, end = _together(start, end)
    assert (start.tolist(), end.tolist()) == ([0, 30, 50], [20, 40, 60])
    assert _busy_until(start, end, np.array([-5, 10, 25, 35, 100])).tolist() == [0, 10, 20, 25, 40]


def test_without_calls_nothing_is_busy() -> None:
    none = np.zeros(0, np.int64)
    assert _busy_until(*_together(none, none), np.array([1, 2])).tolist() == [0, 0]

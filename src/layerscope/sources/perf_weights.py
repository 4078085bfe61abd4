"""How much CPU time a sample stands for."""

from __future__ import annotations

import numpy as np

_MOST_NS = 2.0**62


def weights(
    period: np.ndarray | None, time: np.ndarray, tid: np.ndarray, is_clock: bool, frequency: float
) -> np.ndarray:
    """The CPU time in ns that each sample of one event stands for; 1 where nothing tells.

    `period`: what the event counted since the sample before; None: not told, then all are alike.
    `frequency`: samples a second of CPU time that were asked for; 0: not told.

    Of a clock its period, which is in ns. Of another event its period, at a constant rate: that
    period in the middle of all that was counted belongs to one interval of the frequency (the first
    samples are much closer, until perf has found the right period). Without a frequency, an
    interval is the median of those between samples of one thread.
    """
    if period is not None and is_clock:
        told: np.ndarray = np.maximum(period, 0)
        return told
    counted = np.ones(len(time), np.int64) if period is None else np.maximum(period, 0)
    if frequency:
        interval_ns = 1e9 / frequency
        ordered = np.sort(counted)
        whole = np.cumsum(ordered.astype(np.float64))
        middle = float(ordered[np.searchsorted(whole, whole[-1] / 2)]) if len(ordered) else 1.0
    else:
        order = np.lexsort((time, tid))
        same = np.flatnonzero(np.diff(tid[order]) == 0)
        passed = np.diff(time[order])[same]
        interval_ns = float(np.median(passed)) if passed.any() else 1.0
        middle = float(np.median(counted[order][same + 1])) if len(passed) else 1.0
    found: np.ndarray = np.rint(np.minimum(counted * (interval_ns / max(middle, 1.0)), _MOST_NS))
    return found.astype(np.int64)

"""Time to pass: what the thread has asked for itself."""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_SLEEPS = (35, 230)
_PAUSE, _SIGNALS = (34,), (128, 130)


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """It sleeps, or waits for a signal."""
    if thread.call in _SLEEPS:
        return Wait("sleep", "time to pass (it sleeps)")
    if thread.call in (*_PAUSE, *_SIGNALS):
        return Wait("signal", "a signal")
    return None

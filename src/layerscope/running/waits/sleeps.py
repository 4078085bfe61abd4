"""Time to pass: what the thread has asked for itself."""

from __future__ import annotations

from layerscope.model.running import Wait
from layerscope.running.looked import Look
from layerscope.running.raw_threads import RawThread

_SLEEPS = (35, 230)
_PAUSE, _SIGNALS = (34,), (128, 130)


def find(thread: RawThread, look: Look) -> Wait | None:
    """It sleeps, or waits for a signal."""
    if thread.call in _SLEEPS:
        return Wait("sleep", "time to pass (it sleeps)")
    if thread.call in (*_PAUSE, *_SIGNALS):
        return Wait("signal", "a signal")
    return None

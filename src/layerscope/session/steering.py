"""Windows of one recording that somebody opens and closes from outside, and marks: what
`layerscope start`, `stop` and `mark` ask of the session.

The drainer opens the window in all processes of the program, and closes it when its time is over,
even if this session has been killed meanwhile. Stacks are sampled while it is open.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from layerscope.capture.drainer_messages import MARK, WINDOW
from layerscope.capture.recorder import Recorder, Request
from layerscope.rawfile import windows
from layerscope.recording.run import Run

VERBS = ("start", "stop", "mark")
_PATIENCE_S = 5.0
# What a name may be, in UTF-8: more than anybody reads.
MOST_NAME_BYTES = 1024
# What is wrong, behind the name of a recording.
_PAUSED_ALONE = (
    "only one that was made with `layerscope run --paused` is started and stopped from outside"
)
_NO_WINDOW = f"records everything: {_PAUSED_ALONE}"
_FROM_OUTSIDE = (
    "is made by `layerscope attach` from outside and has no window: Ctrl-C there ends it, and so "
    "does `kill -INT {}`"
)
_OWN_WINDOW = f"opens its window by itself ({{}}): {_PAUSED_ALONE}"
_NO_ANSWER = "does not answer: its drainer has ended, or the disk is full"

Answer = dict[str, Any]


class Steering:
    """Answers what is asked about one recording. Everything may be called from any thread."""

    def __init__(self, recording: Run, recorder: Recorder, of_one: bool = False) -> None:
        """`of_one`: it is of a program that runs already, and not of its children."""
        self._recording = recording
        self._recorder = recorder
        self._of_one = of_one
        self._lock = threading.Lock()
        self._until_ns: int | None = 0  # the window is open until then; None: without end
        self._closing: threading.Timer | None = None

    def state(self) -> Answer:
        """Whether the window is open, and when it closes by itself, in ns since the program's
        start; None: it does not.
        """
        asked = windows.read(self._recording.raw)
        is_steered = asked is not None and asked.steered
        if not is_steered:
            return {"steered": False, "of_one": self._of_one}
        is_open = self._is_open()
        until_ns = self._until_ns if is_open else None
        closes_ns = None if until_ns is None else until_ns - self._recorder.start_ns
        return {"steered": True, "open": is_open, "closes_ns": closes_ns}

    def answer(self, request: Request) -> Answer:
        """Do what was asked for: where the recording is, and what has changed, or an `error`."""
        does: dict[str, Callable[[Request], Answer]] = {
            "start": self._start,
            "stop": self._stop,
            "mark": self._mark,
        }
        with self._lock:
            if not self._recorder.start_ns:
                return {"error": "has not begun yet"}
            if self._recorder.end_ns:
                return {"error": "is over: its program has ended"}
            return {"path": str(self._recording.path), **does[request["what"]](request)}

    def _start(self, request: Request) -> Answer:
        refused = self._refused()
        if refused:
            return {"error": refused}
        for_s = request.get("for_s")
        was_open, now_ns = self._is_open(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        until_ns = None if for_s is None else now_ns + math.ceil(for_s * 1e9)
        self._look_at_stacks(True)
        if not self._tell(until_ns):
            return {"error": _NO_ANSWER}
        if for_s is not None:
            self._closing = threading.Timer(for_s, self._is_over, [until_ns])
            self._closing.daemon = True
            self._closing.start()
        return self._changed(was_open)

    def _stop(self, _request: Request) -> Answer:
        refused = self._refused()
        if refused:
            return {"error": refused}
        was_open = self._is_open()
        if was_open and not self._tell(0):
            return {"error": _NO_ANSWER}
        self._look_at_stacks(False)
        return self._changed(was_open)

    def _mark(self, request: Request) -> Answer:
        at_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        name = str(request["name"])
        if len(name.encode()) > MOST_NAME_BYTES:
            return {"error": f"takes no mark of more than {MOST_NAME_BYTES} bytes"}
        order = {"type": MARK, "at_ns": at_ns, "name": name}
        taken = self._recorder.link.order(order, _PATIENCE_S)
        if not taken:
            return {"error": _NO_ANSWER}
        return {"name": name, "at_ns": at_ns, "run_s": self._run_s(at_ns)}

    def _refused(self) -> str:
        """Why this recording is not started and stopped from outside; empty: it is."""
        asked = windows.read(self._recording.raw)
        if asked is None and self._recorder.is_outside:
            return _FROM_OUTSIDE.format(os.getpid())
        if asked is None:
            return _NO_WINDOW
        return "" if asked.steered else _OWN_WINDOW.format(asked.says())

    def _is_open(self) -> bool:
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return self._until_ns is None or now_ns < self._until_ns

    def _tell(self, until_ns: int | None) -> bool:
        """Have the window open until then; whether the processes of the program know."""
        if self._closing is not None:
            self._closing.cancel()
        self._until_ns = until_ns
        order = {"type": WINDOW, "until_ns": until_ns}
        return self._recorder.link.order(order, _PATIENCE_S)

    def _is_over(self, until_ns: int) -> None:
        """The time of the window is over, which the drainer has seen by itself."""
        with self._lock:
            if self._until_ns == until_ns:
                self._look_at_stacks(False)

    def _look_at_stacks(self, is_open: bool) -> None:
        sampler = self._recorder.sampler
        if sampler is not None and is_open:
            sampler.resume()
        elif sampler is not None:
            sampler.rest()

    def _changed(self, was_open: bool) -> Answer:
        """The answer: how it is now, and whether it was so before."""
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return {"was_open": was_open, "run_s": self._run_s(now_ns), **self.state()}

    def _run_s(self, at_ns: int) -> float:
        """Seconds since the program's start."""
        return (at_ns - self._recorder.start_ns) / 1e9

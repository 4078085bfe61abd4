"""Windows: which steps or seconds of the program are recorded, and what the drainer has to say
about them. Others are opened and closed by the session: as `layerscope start` and `stop` ask, or as
a budget allows.

The agent counts the steps of its process by itself (native/agent/windows.c). It knows no time, and
not what goes on in other processes: a worker of a loader makes no steps, and does as the process
that does. So the drainer writes into the process pages whether the window is open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from layerscope.rawfile import layout
from layerscope.rawfile.json_files import read_options
from layerscope.rawfile.page import ProcessPage

# Where a window is asked for, it is looked at this often.
WINDOW_POLL_S = 0.01
# In the file of options (`raw_json.Options`).
KEY = "window"


class RequestedWindow(Struct, frozen=True):
    """What the user asked for: steps [first, last), or seconds from `after_s` on; None: without
    end, or not at all.

    `every` repeats it: steps or seconds from one beginning to the next. `steered`: nothing of this,
    but while somebody asks for it. `budget`: everything, with pauses where the recording uses more
    than this share of the program's CPU time.
    """

    first: int | None = None
    last: int | None = None
    after_s: float | None = None
    for_s: float | None = None
    every: float | None = None
    steered: bool = False
    budget: float | None = None

    @property
    def follows_session(self) -> bool:
        """Whether the session says when it opens and closes."""
        return self.steered or self.budget is not None

    @property
    def is_of_steps(self) -> bool:
        """Whether it begins with a step."""
        return self.first is not None

    @property
    def is_closed_at_first(self) -> bool:
        """Whether nothing is recorded when the program starts."""
        if self.steered:
            return True
        return bool(self.first or self.after_s)

    def for_agent(self, step_mark: str) -> list[Any]:
        """What the agent gets (`ls_window_set`)."""
        if not self.is_of_steps:
            opens = 1 if self.is_closed_at_first else 2
            return [0, -1, 0, opens, step_mark]
        last = -1 if self.last is None else self.last
        every = int(self.every or 0)
        return [self.first, last, every, 0, step_mark]

    def says(self) -> str:
        """The window in words: what was recorded."""
        if self.steered:
            return "what `layerscope start` asked for"
        if self.budget is not None:
            return f"what a budget of {100 * self.budget:g} % allows"
        unit = "{:g} s"
        what = "from the start"
        if self.first is not None:
            unit = "{:,.0f} steps"
            what = f"from step {self.first:,} on"
            if self.last is not None:
                what = _steps(self.first, self.last - 1)
        elif self.after_s:
            what = f"from {self.after_s:g} s on"
        if self.for_s is not None:
            what += f", for {self.for_s:g} s"
        if self.every:
            what += f", and so every {unit.format(self.every)}"
        return what


def _steps(first: int, last: int) -> str:
    """Step numbers in words."""
    if last <= first:
        return f"step {first:,}"
    return f"steps {first:,} to {last:,}"


def read(raw: Path) -> RequestedWindow | None:
    """The window of the recording whose raw files are in `raw`."""
    return of_options(read_options(raw))


def of_options(options: dict[str, Any]) -> RequestedWindow | None:
    """The window that stands in the file of options; None: everything is recorded."""
    try:
        return RequestedWindow(**options[KEY])
    except (KeyError, TypeError):
        return None


class WindowedProcess(Protocol):
    """What is looked at of a process (`drainer.Process`)."""

    pid: int
    page: ProcessPage | None


class WindowControl:
    """Says in the process pages whether the window is open, at each poll of the drainer."""

    def __init__(self, raw: Path) -> None:
        self.window = read(raw)
        self.start_ns = 0  # of the program, on CLOCK_MONOTONIC
        # As the session said it last: it is open until then; None: without end.
        self.until_ns: int | None = 0
        self.forget_session()

    def forget_session(self) -> None:
        """The session says nothing yet, or no more: a budget allows everything then."""
        if self.window is not None and self.window.budget is not None:
            self.until_ns = None

    def look_again_s(self) -> float:
        """How long what was said holds, at most."""
        if self.window is None:
            return math.inf
        if not self.window.follows_session:
            return WINDOW_POLL_S
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        left_ns = 0 if self.until_ns is None else self.until_ns - now_ns
        return left_ns / 1e9 if left_ns > 0 else math.inf

    def advance(self, processes: Iterable[WindowedProcess]) -> None:
        """Say what is to be said now."""
        if self.window is None:
            return
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        by_pid = {one.pid: one.page for one in processes if one.page is not None}
        if not self.window.is_of_steps:
            said = layout.CAPTURE_NOTHING
            if self.window.follows_session:
                is_open = self.until_ns is None or now_ns < self.until_ns
                said = layout.CAPTURE_OPEN if is_open else layout.CAPTURE_CLOSED
            elif self.start_ns:
                said = state_at(self.window, (now_ns - self.start_ns) / 1e9)
            for page in by_pid.values():
                _say(page, said)
            return
        for page in by_pid.values():
            _say(page, self._of_steps(page, by_pid, now_ns))

    def _of_steps(self, page: ProcessPage, by_pid: dict[int, ProcessPage], now_ns: int) -> int:
        assert self.window is not None
        leader = self._leader(page, by_pid)
        if leader is not page and counts_steps(leader):
            is_open = leader.number("window_is_open")
            return layout.CAPTURE_OPEN if is_open else layout.CAPTURE_CLOSED
        if page.number("window") == layout.CAPTURE_OVER:
            return layout.CAPTURE_OVER
        opened_ns = page.number("window_opened_ns")
        for_s = self.window.for_s
        if for_s is None or not opened_ns:
            return layout.CAPTURE_NOTHING
        is_over = now_ns - opened_ns >= for_s * 1e9
        return layout.CAPTURE_OVER if is_over else layout.CAPTURE_NOTHING

    @staticmethod
    def _leader(page: ProcessPage, by_pid: dict[int, ProcessPage]) -> ProcessPage:
        """The page of the nearest process, from this one up, that counts steps; else the
        outermost.
        """
        leader = page
        for _ in range(len(by_pid)):
            if counts_steps(leader) or leader.number("ppid") not in by_pid:
                break
            leader = by_pid[leader.number("ppid")]
        return leader


def counts_steps(page: ProcessPage) -> bool:
    """Whether the process with this page has steps of its own: not requests."""
    return page.number("window_rule") >= layout.RULE_LOADER


def state_at(window: RequestedWindow, spent_s: float) -> int:
    """What is to be said this many seconds after the start of the program."""
    since_s = spent_s - (window.after_s or 0.0)
    if since_s < 0:
        return layout.CAPTURE_CLOSED
    if window.for_s is None:
        return layout.CAPTURE_OPEN
    if window.every:
        is_open = since_s % window.every < window.for_s
        return layout.CAPTURE_OPEN if is_open else layout.CAPTURE_CLOSED
    if since_s < window.for_s:
        return layout.CAPTURE_OPEN
    return layout.CAPTURE_OVER


def _say(page: ProcessPage, said: int) -> None:
    """Tell the process, where it does not know yet."""
    if page.number("window") != said:
        page.set("window", said)

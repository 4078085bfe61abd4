"""The windows of a recorded process, as the agent's marks tell them. Used by `conversion` and
`epochs`.

A rule may show late: what a weaker one had let in by then is in no window and is dropped, except
for what is in the tables already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.ingest.phases import EARLIEST
from layerscope.ingest.windowed import RecordedWindow, WindowList
from layerscope.model.distinct import distinct
from layerscope.model.events import WINDOW_UNCOUNTED
from layerscope.model.layers import OPERATORS
from layerscope.rawfile import layout
from layerscope.rawfile.windows import RequestedWindow

RULES = {
    layout.RULE_REQUEST: "request",
    layout.RULE_SERVED: "served",
    layout.RULE_LOADER: "loader",
    layout.RULE_OPTIMIZER: "optimizer",
    layout.RULE_MARK: "mark",
    layout.RULE_NAMED: "mark",
}
# What is recorded begins when a mark says so.
UNASKED = RequestedWindow(after_s=1.0)
_RULE_BITS = layout.WINDOW_BY_TIME - 1
Row = dict[str, Any]


class ProcessWindows(Struct):
    """The windows of one process; of a recording of everything, none.

    `marks` gives those of windows of the process so far: tracks, and records whose times are in ns
    of the run.
    """

    asked: RequestedWindow | None = None
    _seen: int = -1  # marks that `_windows` is made of
    _windows: WindowList = field(default_factory=lambda: WindowList([]))

    def known(self, marks: Callable[[], tuple[np.ndarray, np.ndarray]]) -> WindowList:
        """Those so far; the last one may still be open."""
        _, records = marks()
        if len(records) != self._seen:
            self._seen = len(records)
            # Where the agent could not record there are windows that nobody asked for
            # (session/stock_windows.py).
            self._windows = WindowList(windows_of(self.asked or UNASKED, records))
        return self._windows


def windows_of(asked: RequestedWindow, records: np.ndarray) -> list[RecordedWindow]:
    """The windows that these marks tell, in the order of time."""
    marks = records[np.argsort(records["start"], kind="stable")]
    if not len(marks):
        return []
    code = marks["end"].astype(np.int64)
    by_time = code & layout.WINDOW_BY_TIME > 0
    rule = code & _RULE_BITS
    strongest = int(rule.max())
    holds = by_time | (rule == strongest)
    marks, code, by_time = marks[holds], code[holds], by_time[holds]
    first = RecordedWindow(EARLIEST, first=0, rule=RULES.get(strongest, ""))
    open_one = None if asked.is_closed_at_first else first
    if strongest != layout.RULE_REQUEST:
        return _between(marks, code, first.rule, open_one)
    # It may have seemed that requests begin with one module, and then that it is another one: the
    # last of them counts.
    leader, code = code >> layout.WINDOW_INSTANCE, code & ((1 << layout.WINDOW_INSTANCE) - 1)
    for number in distinct(leader)[::-1].tolist():
        mine = by_time | (leader == number)
        if found := _between(marks[mine], code[mine], first.rule, open_one):
            return found
    return []


def _between(
    marks: np.ndarray, code: np.ndarray, rule: str, open_one: RecordedWindow | None
) -> list[RecordedWindow]:
    """The windows between marks of opening and closing; `open_one` is open before the first of
    these.
    """
    found: list[RecordedWindow] = []
    for record, bits in zip(marks, code.tolist(), strict=True):
        at_ns, number = int(record["start"]), int(record["seq"])
        if record["module"] == layout.MARK_OPENED:
            if open_one is None or bits & layout.WINDOW_WAS_CLOSED:
                is_cut = bool(bits & layout.WINDOW_BY_TIME)
                instance = (bits >> layout.WINDOW_INSTANCE) or -1
                open_one = RecordedWindow(
                    at_ns, first=number, rule=rule, optimizer=instance, is_cut=is_cut
                )
        elif open_one is not None:
            found.append(_closed(open_one, at_ns, number, bits))
            open_one = None
    return [*found, *([open_one] if open_one is not None else [])]


def _closed(window: RecordedWindow, at_ns: int, number: int, bits: int) -> RecordedWindow:
    """The window, closed by a mark with this number and these bits."""
    instance = (bits >> layout.WINDOW_INSTANCE) or window.optimizer
    closed = replace(window, close_ns=at_ns, optimizer=instance)
    if bits & layout.WINDOW_BY_TIME:
        return replace(closed, is_cut_off=True)
    return replace(closed, steps=number - window.first)


def problems(
    asked: RequestedWindow | None,
    found: list[tuple[int, WindowList, np.ndarray]],
    has_spans: bool,
    begun: int = 0,
    has_samples: bool = False,
) -> list[Row]:
    """What is not as it was asked for.

    `found`: of each process its pid, its windows and the starts of its steps; `begun`: the most
    steps that one began; `has_samples`: whether stacks were sampled.
    """
    if asked is None or asked.budget is not None:  # the session says what a budget has left out
        return []
    rows = []
    is_open = has_spans or any(windows.known for _, windows, _ in found)
    if not is_open and asked.steered:
        rows.append(_nothing_ran() if has_samples else _never_started())
    elif not is_open and (asked.first or not asked.is_of_steps):
        rows.append(_never_opened(asked, begun))
    elif asked.is_of_steps and not begun and not any(windows.known for _, windows, _ in found):
        rows.append(_uncounted())
    elif asked.last is not None and not asked.every and 0 < begun < asked.last:
        rows.append(_ended_inside(asked, begun))
    for pid, windows, starts in found:
        if not windows.known:
            continue
        first = windows.known[0]
        if asked.first is not None and first.first > asked.first and not asked.every:
            rows.append(_late(pid, asked.first, first.first))
        differing = [window for window in windows.known if _differs(window, starts)]
        if differing:
            rows.append(_differing(pid, differing[0], len(differing)))
    return rows


def _differs(window: RecordedWindow, starts: np.ndarray) -> bool:
    """Whether the window holds another number of steps than the agent counted."""
    if window.steps < 0:
        return False
    is_after_open = starts >= window.open_ns
    is_before_close = starts <= window.close_ns
    is_inside = is_after_open & is_before_close
    return int(is_inside.sum()) != window.steps


def _never_opened(asked: RequestedWindow, begun: int) -> Row:
    """The problem that nothing was recorded."""
    if asked.first is None:
        what = f"nothing ran in the window ({asked.says()}) that could be recorded"
        remedy = "choose another one"
    else:
        what = f"no recorded process of the program came to step {asked.first:,}"
        remedy = "choose earlier ones"
        if begun:
            what += f": step {begun - 1:,} was the last to begin"
    return {
        "layer": OPERATORS,
        "code": "window_never_opened",
        "what": what,
        "remedy": f"{remedy}; `layerscope run` without a window shows what there is",
        "lost": "everything",
    }


def _uncounted() -> Row:
    """The problem that all was recorded."""
    return {
        "layer": OPERATORS,
        "code": WINDOW_UNCOUNTED,
        "what": "steps of this program are found when it has ended, so all of it was recorded",
        "remedy": "ask for seconds of it (--after, --for)",
        "lost": "a window of steps alone",
    }


def _never_started() -> Row:
    """The problem that nothing was recorded of a run that waits to be told."""
    return {
        "layer": OPERATORS,
        "code": "window_never_opened",
        "what": "nothing that could be recorded ran while `layerscope start` asked for it",
        "remedy": "while the program runs: layerscope start, and layerscope stop",
        "lost": "everything",
    }


def _nothing_ran() -> Row:
    """The problem that of a run that waits to be told there are stacks alone."""
    return {
        "layer": OPERATORS,
        "code": "window_never_opened",
        "what": "no operator, module or range ran while `layerscope start` asked for it",
        "remedy": "if the program has any: layerscope start while they run",
        "lost": "operators, modules, steps and ranges",
    }


def _ended_inside(asked: RequestedWindow, begun: int) -> Row:
    return {
        "layer": OPERATORS,
        "code": "window_cut",
        "what": f"the program ended before the window ({asked.says()}): step {begun - 1:,} was the "
        "last to begin",
        "remedy": "",
        "lost": "",
    }


def _late(pid: int, asked: int, first: int) -> Row:
    return {
        "layer": OPERATORS,
        "code": "window_late",
        "what": f"process {pid}: when it showed what a step is, the recorder had closed the window "
        "already",
        "remedy": "define a step with --step-mark, or choose a window that begins later",
        "lost": f"steps {asked:,} to {first - 1:,}",
    }


def _differing(pid: int, window: RecordedWindow, count: int) -> Row:
    windows = f"{count:,} windows" if count > 1 else "the window"
    return {
        "layer": OPERATORS,
        "code": "window_differs",
        "what": f"process {pid}: {windows} from step {window.first:,} on should hold "
        f"{window.steps:,} steps, which is "
        "not what was found in what was recorded",
        "remedy": "define a step with --step-mark",
        "lost": "the numbers of the steps are not certain",
    }

"""The samples that a trace in Chrome's format has beside its events, with the tree `stackFrames`.
Used by `chrome_content`.

A sample counts until the next one of its thread; the last one as long as the one in the middle of
the others. What a sample weighs, the file tells in units that it does not name.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from statistics import median_low
from typing import Any

from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import STACKS
from layerscope.sources.call_stacks import MOST_DEPTH, NONE, CallStacks

# The track of a thread, by what the file has as pid and tid.
Place = Callable[[Any, Any], int]
_MOST_NS = 1 << 61
_MOST_LINE = 1 << 31
# Of the only sample of a thread.
_USUAL_NS = 1_000_000
_PYTHON = (".py", ".pyx")


class ChromeSamples(Struct):
    """Those of a file. `rejected`: how many have a time or a stack that cannot be."""

    stacks: CallStacks = field(default_factory=CallStacks)
    rejected: int = 0
    _tree: dict[str, Any] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)

    def add(self, beside: dict[str, Any], place: Place) -> None:
        """Take in what stands `beside` the events."""
        samples, tree = beside.get("samples"), beside.get("stackFrames")
        if not isinstance(samples, list) or not isinstance(tree, dict):
            return
        self._tree = tree
        by_track: dict[int, list[tuple[int, int]]] = {}
        tracks: dict[tuple[str, str], int] = {}
        for sample in samples:
            told = sample if isinstance(sample, dict) else {}
            at_ns = _ns(told.get("ts"))
            stack = self._stack(str(told.get("sf")))
            if at_ns is None or stack == NONE:
                self.rejected += 1
                continue
            pid, tid = told.get("pid"), told.get("tid")
            thread = repr(pid), repr(tid)
            if thread not in tracks:
                tracks[thread] = place(pid, tid)
            track = tracks[thread]
            by_track.setdefault(track, []).append((at_ns, stack))
        for track, found in by_track.items():
            self._add_track(track, found)

    def problems(self) -> list[Problem]:
        """What has to be said of them."""
        if not self.rejected:
            return []
        what = f"{self.rejected:,} samples of the trace have a time or a stack that cannot be"
        return [Problem(STACKS, "events_rejected", what, "record again", "these samples")]

    def _add_track(self, track: int, found: list[tuple[int, int]]) -> None:
        found.sort()
        times_ns = [at_ns for at_ns, _ in found]
        pairs = pairwise(times_ns)
        gaps_ns = [later - earlier for earlier, later in pairs]
        usual_ns = _USUAL_NS
        if gaps_ns:
            usual_ns = median_low(gaps_ns)
        # Of several at once, the last one was until the next.
        for (at_ns, stack), gap_ns in zip(found, [*gaps_ns, usual_ns], strict=True):
            self.stacks.sample(track, stack, at_ns, max(gap_ns, 1))

    def _stack(self, key: str) -> int:
        """The stack whose innermost frame the file calls so; NONE: it has none, or without end."""
        path = self._unknown(key)
        outermost = self._tree[path[-1]].get("parent") if path else key
        around = self._known.get(str(outermost))
        is_endless = len(path) > MOST_DEPTH or around == NONE
        stack = NONE if around is None else around
        for inner in reversed(path):
            if not is_endless:
                stack = self.stacks.below(stack, self._frame(self._tree[inner]))
            self._known[inner] = stack
        return stack

    def _unknown(self, key: str) -> list[str]:
        """The frame that is called so and those around it, up to the first that is known."""
        path: list[str] = []
        while key not in self._known and isinstance(self._tree.get(key), dict):
            path.append(key)
            key = str(self._tree[key].get("parent"))
            if len(path) > MOST_DEPTH:
                break
        return path

    def _frame(self, told: dict[str, Any]) -> int:
        """The number of a frame, which is of Python if its file is."""
        name = told.get("name")
        url = told.get("url")
        file = url if isinstance(url, str) and url else None
        layer = "native"
        line = None
        if file is not None:
            line = _line(told.get("line"))
            if file.endswith(_PYTHON):
                layer = "python"
        called = str(name or "[unknown]")
        return self.stacks.frames.add(layer, called, file=file, line=line)


def _line(told: Any) -> int | None:
    """The number of a line; None: it is none."""
    if not isinstance(told, int):
        return None
    is_possible = 0 < told < _MOST_LINE
    return told if is_possible else None


def _ns(told: Any) -> int | None:
    """Microseconds, which may be a text, as ns; None: they cannot be."""
    try:
        at_us = Decimal(str(told))
    except InvalidOperation:
        return None
    if not at_us.is_finite() or abs(at_us) >= _MOST_NS // 1000:
        return None
    return round(at_us * 1000)

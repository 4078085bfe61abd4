"""The steps of a process while its spans still come in: stretch by stretch, each with the last
steps of the one before.

A run that fits into one stretch has the steps that `analyse.steps` finds in all of it. In a longer
one a stretch ends where its last step begins, because that one may go on, and what the definitions
say of the usual step is said of the steps of the stretch. A rule holds until a stronger one finds
something: the steps of the weaker one are then forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct, field

from layerscope.ingest.lines import SpanColumns
from layerscope.ingest.phases import Int8s, Int32s, Int64s
from layerscope.ingest.steps import ProcessSteps, find_steps, warmup

# Steps that are looked at once more together with the stretch that follows them.
CONTEXT_STEPS = 8
# Of a step that goes on and on, this many spans of its outline are kept.
MOST_LINES = 1_000_000
# Before there is any step there may be none at all: they are looked at again and again.
MOST_LINES_BEFORE = 250_000
COLUMNS = ("start_ns", "dur_ns", "load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
_EVER = np.iinfo(np.int64).max

Columns = dict[str, np.ndarray]


class Stretch(Struct):
    """What was found of a stretch. Spans that start before `cut_ns` belong to it, or to an earlier
    one.
    """

    cut_ns: int
    found: ProcessSteps
    number: int = 0  # of the first step in `found`
    known_from_ns: int = -1  # of what starts before this, only the step is known, from `earlier`
    earlier: tuple[Int64s, Int64s] | None = None  # start and duration of the steps before `number`
    forgets: bool = False  # what was found before this stretch is no step after all

    def assign(self, start_ns: Int64s, track: Int32s) -> tuple[Int32s, Int8s]:
        """Step number and phase at each of these times, -1 for none."""
        step, phase = self.found.assign(start_ns, track)
        np.add(step, np.int32(self.number), out=step, where=step >= 0)
        early = np.flatnonzero(start_ns < self.known_from_ns)
        if self.earlier is None or not len(early):
            return step, phase
        starts, durations = self.earlier
        if len(starts):
            step[early] = _step_at(start_ns[early], starts, durations)
            phase[early] = -1
        return step, phase


class Stepping(Struct):
    """Finds the steps of one process: `rule`, `optimizer` and, in order of their starts, their
    `COLUMNS`.
    """

    rule: str = "none"
    optimizer: int | None = None
    count: int = 0
    _found: list[Columns] = field(default_factory=list)
    _lines: Columns = field(
        default_factory=dict
    )  # from the first of the steps that are looked at again
    _from_ns: int = -1  # its start
    _accepted_ns: int = -1  # the start of the first step that is not counted yet

    def advance(
        self,
        lines: Columns,
        prepare: Callable[[Columns, int], SpanColumns],
        end_ns: int,
        last: bool,
        patient: bool,
    ) -> Stretch | None:
        """Find the steps in what starts before `end_ns`, of which all is known but what is still
        open then.

        `lines` are the outermost spans since the last cut; `prepare` makes of such columns, and the
        time from which on marks count, what the rules want. `last`: nothing more will come. None:
        there is no complete step yet, and with `patient` it is better to wait for it.
        """
        kept = len(self._lines["start_ns"]) if self._lines else 0
        lines = self._with_kept(lines)
        found = find_steps(prepare(lines, self._from_ns), self.rule)
        forgets = self.count > 0 and len(found) > 0 and found.rule != self.rule
        if forgets:
            self._found, self.count, self._accepted_ns = [], 0, -1
        known = self._known(found)
        accepted, cut_ns = (len(found), _EVER) if last else self._certain(found)
        if accepted <= known and not last:
            return None if patient else self._go_on(found, known, lines, end_ns)
        first = self.count - known
        stretch = Stretch(cut_ns, found, first, self._from_ns, self._earlier(), forgets)
        if accepted > known:
            self._keep(found, known, accepted)
        if not last:
            oldest = max(0, accepted - CONTEXT_STEPS)
            self._from_ns = int(found.start_ns[oldest])
            self._accepted_ns = cut_ns
            self._keep_context(lines, kept)
        return stretch

    def _with_kept(self, lines: Columns) -> Columns:
        """What was kept of earlier spans, and those of `lines` that are not among it."""
        if not self._lines:
            return lines
        fresh = lines["start_ns"] >= self._from_ns
        return {
            name: np.concatenate([self._lines[name], values[fresh]])
            for name, values in lines.items()
        }

    def _keep_context(self, lines: Columns, kept: int) -> None:
        """Keep the spans of the steps that are looked at again. What starts after the cut comes
        again, but for the first `kept`: their spans were let go before.
        """
        context = lines["start_ns"] >= self._from_ns
        context[kept:] &= lines["start_ns"][kept:] < self._accepted_ns
        self._lines = {name: values[context] for name, values in lines.items()}

    def forget(self) -> None:
        """What was found is no step after all."""
        self.rule = "none"
        self.optimizer = None
        self.count = 0
        self._found = []
        self._lines = {}
        self._from_ns = -1
        self._accepted_ns = -1

    def columns(self) -> Columns:
        """All steps: `COLUMNS`, and `warmup`."""
        columns: Columns = {name: self._column(name) for name in COLUMNS}
        columns["warmup"] = warmup(columns["dur_ns"])
        return columns

    def _known(self, found: ProcessSteps) -> int:
        """How many of the steps were counted before."""
        before = found.start_ns < self._accepted_ns
        if not found.lanes:  # where a step begins may look otherwise by what follows
            before = found.start_ns + found.dur_ns <= self._accepted_ns
        return int(np.count_nonzero(before)) if self.count else 0

    def _certain(self, found: ProcessSteps) -> tuple[int, int]:
        """How many steps are over, and where the first one begins that may not be: on each lane it
        is the last.
        """
        if not len(found):
            return 0, -1
        lasts = [int(timeline.step.max(initial=0)) for timeline in found.lanes.values()] or [
            len(found) - 1
        ]
        starts = found.start_ns[lasts]
        going_on = starts[starts >= self._accepted_ns]  # a lane without a new step is none any more
        cut_ns = int(going_on.min()) if len(going_on) else int(starts.max())
        return int(np.searchsorted(found.start_ns, cut_ns)), cut_ns

    def _keep(self, found: ProcessSteps, known: int, accepted: int) -> None:
        """Count the steps from `known` up to `accepted`."""
        columns = {name: getattr(found, name) for name in COLUMNS}
        new = {name: values[known:accepted] for name, values in columns.items()}
        self._found.append(new)
        self.count += accepted - known
        self.rule = found.rule
        self.optimizer = found.optimizer

    def _go_on(self, found: ProcessSteps, known: int, lines: Columns, end_ns: int) -> Stretch:
        """No step has ended for long: let go of the spans, and keep the outline of the step that
        goes on.
        """
        stretch = Stretch(end_ns, found, self.count - known, self._from_ns, self._earlier())
        most = MOST_LINES if self.count else MOST_LINES_BEFORE
        newest = np.argsort(lines["start_ns"], kind="stable")[-most:]
        self._lines = {name: values[newest] for name, values in lines.items()}
        return stretch

    def starts(self) -> Int64s:
        """The starts of all steps."""
        return self._column("start_ns")

    def _earlier(self) -> tuple[Int64s, Int64s]:
        """The starts and the durations of all steps."""
        start = self._column("start_ns")
        dur = self._column("dur_ns")
        return start, dur

    def _column(self, name: str) -> Int64s:
        """One column of all steps."""
        none = np.zeros(0, np.int64)
        columns = [part[name] for part in self._found]
        return np.concatenate([none, *columns])


def _step_at(time_ns: Int64s, starts: Int64s, durations: Int64s) -> Int64s:
    """The step, by its position, that each of these times lies in; -1: none."""
    last = np.searchsorted(starts, time_ns, side="right") - 1
    step = np.maximum(last, 0)
    end_ns = starts[step] + durations[step]
    inside = (time_ns >= starts[step]) & (time_ns < end_ns)
    return np.where(inside, step, -1)

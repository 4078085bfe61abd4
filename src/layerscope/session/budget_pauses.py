"""A budget that somebody asked for: beside a lower rate of stacks, the whole recording pauses now
and then, in all processes of the program.

What it costs is the CPU time of our processes, and what recording adds to a step of the program,
which shows when recorded steps are compared with others. Until there are pauses, or steps, that is
what the records and the handlers of samples state.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from layerscope.capture.drainer_messages import WINDOW
from layerscope.capture.recorder import Recorder, surviving
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.session.allowance import FIRST_S, LEAST_PAUSE_S, Allowance
from layerscope.session.budget import (
    EXCEEDED,
    Budget,
    BudgetOptions,
    Spent,
    cpu_ns_of,
    percent,
    twice,
)
from layerscope.session.converter import Converter
from layerscope.session.step_costs import LEAST_STEPS, StepCosts

PAUSED = "budget_pauses"
# What it takes to make tables of a record, where the converter waits until the program leaves it a
# CPU (benchmarks/results/drain.md, whole: 0.62 to 0.65 us of the converter, and the summary).
_CONVERSION_NS = 800
# A run may end in the middle of a stretch that is not paid for yet.
ABOVE = 1.1
# The drainer is asked to close a window; one that takes its place is asked again.
_PATIENCE_S = 0.5


class PausingBudget(Budget):
    """Keeps the recording of `session`, whose window follows the session, within `asked`."""

    def __init__(self, asked: BudgetOptions, session: Recorder, converter: Converter) -> None:
        super().__init__(asked, session, converter)
        self._allowance = Allowance(asked.share)
        self._step_costs = StepCosts()
        self._of_program = Spent(starts_s=0.0)
        self._of_drainer, self._of_converter = Spent(), Spent()
        self._before: tuple[int, int] | None = None  # CPU time of the program, and steps
        self._steps: deque[int] = deque(maxlen=round(LEAST_PAUSE_S))  # of the last seconds
        self._recorded_ns = 0  # CPU time of the program while it was recorded
        self._turning: threading.Thread | None = None
        session.on_watch.append(self._look_at_all)

    def _look_at_all(self) -> None:
        """Every second: pause, or go on."""
        session, allowance = self._session, self._allowance
        if not session.start_ns:
            return
        at_s, link = self._at_s(), session.link
        program_ns = self._of_program.read(at_s, {session.pid, *link.program_pids})
        inside_ns = self._inside_ns(at_s, program_ns, link.steps())
        ours_ns = self._beside_ns(at_s) + inside_ns
        if self._turning is not None and self._turning.is_alive():
            return
        was_open = allowance.is_open
        makes_steps = sum(self._steps) >= LEAST_STEPS
        is_open = allowance.look(at_s, program_ns - inside_ns, ours_ns, makes_steps)
        if is_open != was_open:
            # A sampler that does not answer must not keep the signals of the program.
            self._turning = threading.Thread(target=self._turn, args=[is_open], daemon=True)
            self._turning.start()

    def _inside_ns(self, at_s: float, program_ns: int, steps: int) -> int:
        """What the recording has cost inside the program, which has used so much and begun so many
        steps.
        """
        before, self._before = self._before, (program_ns, steps)
        if before is not None and at_s >= FIRST_S:
            used_ns, begun = program_ns - before[0], max(steps - before[1], 0)
            self._step_costs.add(self._allowance.is_open, used_ns, begun)
            self._steps.append(begun)
            self._recorded_ns += used_ns if self._allowance.is_open else 0
        added = self._step_costs.added
        return max(
            self._records_ns() + self._handler_ns, round(self._recorded_ns * added / (1 + added))
        )

    def _beside_ns(self, at_s: float) -> int:
        """CPU time of our processes, and what is left to do for the converter."""
        link, sampler = self._session.link, self._sampler
        used_ns = time.process_time_ns() + self._of_drainer.read(at_s, (link.pid,))
        converted_ns = self._of_converter.read(at_s, (self._converter.pid,))
        used_ns += max(converted_ns, link.records() * _CONVERSION_NS)
        if sampler is not None:  # each pause ends one
            used_ns += sampler.cpu_ns + ((cpu_ns_of(sampler.pid) or 0) if sampler.pid else 0)
        return used_ns

    def _turn(self, is_open: bool) -> None:
        """Record from now on, or pause."""
        with surviving(self._session.problems):
            if is_open and self._sampler is not None:
                self._control.begin_again()
                self._sampler.resume()
            order = {"type": WINDOW, "until_ns": None if is_open else 0}
            self._session.link.order(order, _PATIENCE_S)
            if not is_open and self._sampler is not None:
                self._sampler.rest()

    def finish(self) -> str | None:
        """The program has ended: say what the pauses have left out. What of the run was recorded,
        in words; empty: everything.
        """
        at_s = (self._session.end_ns - self._session.start_ns) / 1e9
        allowance = self._allowance
        allowance.finish(at_s)
        if allowance.used_share > ABOVE * allowance.share:
            self._say(EXCEEDED, self._overdrawn())
        if not allowance.pauses:
            return ""
        recorded = f"{at_s - allowance.paused_s:.1f} of {at_s:.1f} s"
        self._say(PAUSED, self._paused(recorded))
        return f"{recorded}, as a budget of {percent(allowance.share)} allows"

    def _paused(self, recorded: str) -> Problem:
        allowance, costs = self._allowance, self._step_costs
        times = f"{allowance.pauses} times" if allowance.pauses > 1 else "once"
        what = f"from {allowance.first_pause_s:.1f} s on the recording paused {times}, "
        if allowance.was_compared and allowance.pauses == 1:
            what += "to compare recorded steps with others"
        else:
            what += f"to keep its own CPU time below {percent(allowance.share)} of the program's"
        what += f": {recorded} were recorded"
        if costs.added:
            what += f", whose steps took {percent(costs.added)} more CPU time than the others"
        remedy = f"{twice(allowance.share)} records more, --budget none everything"
        return Problem(OPERATORS, PAUSED, what, remedy, "all layers while it paused")

    def _overdrawn(self) -> Problem:
        allowance = self._allowance
        what = (
            f"the recording's own CPU time was {percent(allowance.used_share)} of the program's "
            f"from {FIRST_S:g} s on, above the budget of {percent(allowance.share)}: the program "
            "ended before pauses could make up for it, or they cost too much themselves"
        )
        return Problem(OPERATORS, EXCEEDED, what, "record fewer layers (--without)")

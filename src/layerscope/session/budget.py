"""What a recording may cost while the program runs: a share of the program's CPU time. Where it
costs more and stacks are a good part of that, they are sampled more rarely, and as often as before
when there is room again. Where a user asks for a budget and that is not enough, all of the
recording pauses now and then (`budget_pauses.py`).

Counted are the CPU time of the drainer, the sampler, the converter and the session, and what the
handlers of samples and the records cost inside the program. The start of the program and of each
of our processes is left out: it is paid once, and no rate changes it. So is what comes after the
end of the program.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import astuple

from layerscope.capture.recorder import Recorder
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS, STACKS
from layerscope.model.units import three_digits
from layerscope.session.converter import Converter

DEFAULT_SHARE = 0.05
LOWERED, EXCEEDED, UNKEPT = "rate_lowered", "budget_exceeded", "budget_unkept"
# Of the program, and of each of our processes: imports, and the first look at everything.
START_S = 3.0
STARTS_S = 2.0
# One measurement: the converter works in batches, so it takes a few to know the cost.
WINDOW_S = 2.0
WINDOW_CPU_NS = 500_000_000
WINDOWS = 5
# Above twice the budget one measurement is enough to lower the rate.
AT_ONCE = 2.0
LEAST_WINDOWS = 2
# A lower rate must save a tenth of the cost: else it loses samples for nothing.
LEAST_SAVING = 0.1
# The program does something else where its stacks cost so much more than at the last change.
ANOTHER = 1.5
# The rate goes up where the recording would then still be well below the budget.
ROOM = 0.8
LEAST_HZ = 10
# Changes of the rate that a sentence names one by one, beside the first.
_MOST_SAID = 3
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of the kernel: of all threads, exact


class BudgetOptions(Struct, frozen=True):
    """A budget: the `share` of the program's CPU time, and whether the user asked for it."""

    share: float
    is_asked: bool = False


class Used(Struct, frozen=True):
    """CPU time in ns: of the `program` itself, of stacks by the `sampler` and by the `handlers` in
    the program, and of all `others` of the recording.
    """

    program: int = 0
    sampler: int = 0
    handlers: int = 0
    others: int = 0

    def since(self, before: Used) -> Used:
        """What was used after `before`."""
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Used(*(max(now - then, 0) for now, then in pairs))

    def plus(self, more: Used) -> Used:
        """Both together."""
        pairs = zip(astuple(self), astuple(more), strict=True)
        return Used(*(one + other for one, other in pairs))

    @property
    def share(self) -> float:
        """Of the recording, in the program's."""
        return self.stacks_share + self.others / max(self.program, 1)

    @property
    def stacks_share(self) -> float:
        """Of the stacks, in the program's."""
        return (self.sampler + self.handlers) / max(self.program, 1)

    @property
    def samples_share(self) -> float:
        """Of what may follow the rate: of the sampler about half, while nothing else is known."""
        return (self.sampler / 2 + self.handlers) / max(self.program, 1)


class RateControl:
    """Decides how often stacks are sampled."""

    def __init__(self, share: float, hz: int) -> None:
        self.share = share
        self.hz = hz
        self.whole = Used()  # all that was measured
        self._rates = [hz]  # from the one that was asked for down to the lowest
        while self._rates[-1] > LEAST_HZ:
            half = self._rates[-1] // 2
            self._rates.append(half if half > LEAST_HZ * 5 // 4 else LEAST_HZ)
        self._begun: tuple[float, Used] | None = None
        self._windows: collections.deque[Used] = collections.deque(maxlen=WINDOWS)
        self._before: tuple[int, float] | None = None  # the last rate, and the stacks' share then
        # What one sample a second more costs, as the last change has shown, and the stacks' share.
        self._learned: tuple[float, float] | None = None

    def begin_again(self) -> None:
        """The recording has paused: that is no part of any measurement."""
        self._begun = None

    def is_due(self, at_s: float) -> bool:
        """Whether a measurement could end now, in seconds since the program began."""
        return at_s >= (START_S if self._begun is None else self._begun[0] + WINDOW_S)

    def look(self, at_s: float, used: Used) -> bool:
        """Take what was used until now; whether the rate has changed."""
        if not self.is_due(at_s):
            return False
        if self._begun is None:
            self._begun = at_s, used
            return False
        window = used.since(self._begun[1])
        if window.program < WINDOW_CPU_NS:
            return False
        self._begun = at_s, used
        self._windows.append(window)
        self.whole = self.whole.plus(window)
        recent = Used()
        for one in self._windows:
            recent = recent.plus(one)
        hz = self._next_hz(recent)
        if hz == self.hz:
            return False
        self._before = self.hz, recent.stacks_share
        self.hz = hz
        self._windows.clear()
        return True

    def _next_hz(self, recent: Used) -> int:
        at = self._rates.index(self.hz)
        higher = self._rates[max(at - 1, 0)]
        lower = self._rates[min(at + 1, len(self._rates) - 1)]
        is_known = len(self._windows) >= LEAST_WINDOWS
        of_hz = self._of_hz(recent, is_known)
        given_up = of_hz * (higher - self.hz)
        least = LEAST_SAVING * recent.share
        if recent.share > self.share * (1 if is_known else AT_ONCE):
            if of_hz * (self.hz - lower) >= least:
                return lower
            # A part of the sampler's cost is no sample's: where that is all, nothing is saved.
            return higher if is_known and given_up < least / 2 else self.hz
        has_room = recent.share + given_up < ROOM * self.share
        return higher if has_room and len(self._windows) == WINDOWS else self.hz

    def _of_hz(self, recent: Used, is_known: bool) -> float:
        """What one sample a second more costs, as a share of the program's CPU time."""
        guess = recent.samples_share / self.hz
        if is_known and self._before is not None:
            before_hz, before_share = self._before
            slope = (before_share - recent.stacks_share) / (before_hz - self.hz)
            self._learned, self._before = (max(slope, 0.0), recent.stacks_share), None
        if self._learned is None:
            return guess
        slope, then_share = self._learned
        is_another = recent.stacks_share > ANOTHER * then_share
        return guess if is_another else min(slope, recent.stacks_share / self.hz)


def cpu_ns_of(pid: int) -> int | None:
    """CPU time of a process of anybody's; None: it has ended."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK)
    except OSError:
        return None


class Spent:
    """CPU time of processes without their first `starts_s` seconds, of those that ended too."""

    def __init__(
        self,
        cpu_ns_of: Callable[[int], int | None] = cpu_ns_of,
        starts_s: float = STARTS_S,
    ) -> None:
        self._cpu_ns_of = cpu_ns_of
        self._starts_s = starts_s
        self._known: dict[int, tuple[float, int]] = {}  # since when, CPU time then
        self._total_ns = 0

    def read(self, at_s: float, pids: Iterable[int]) -> int:
        """What they have used until now; 0 among `pids` is none."""
        for pid in pids:
            now_ns = self._cpu_ns_of(pid) if pid else None
            if now_ns is None:  # another process may have its number next
                self._known.pop(pid, None)
                continue
            since_s, before_ns = self._known.setdefault(pid, (at_s, now_ns))
            if at_s >= since_s + self._starts_s:
                self._total_ns += max(now_ns - before_ns, 0)
            self._known[pid] = since_s, now_ns
        return self._total_ns


class Budget:
    """Keeps the recording of `session` within `asked`, as far as stacks are what it costs."""

    def __init__(self, asked: BudgetOptions, session: Recorder, converter: Converter) -> None:
        self._asked = asked
        self._session = session
        self._converter = converter
        self._sampler = session.sampler
        self._control = RateControl(asked.share, self._sampler.hz if self._sampler else LEAST_HZ)
        self._of_sampler, self._of_others = Spent(), Spent()
        self._changes: list[tuple[float, int]] = []  # seconds since the beginning, rate from then
        # What handlers of samples have used: in all, and as the sampler of now says it.
        self._handler_ns = self._told_handler_ns = 0
        if self._sampler is not None:
            self._sampler.on_used = self._look

    def _look(self, program_ns: int, handler_ns: int) -> None:
        """Every second, with what the program and the handlers of samples in it have used."""
        sampler, session = self._sampler, self._session
        is_same = handler_ns >= self._told_handler_ns
        self._handler_ns += handler_ns - self._told_handler_ns if is_same else handler_ns
        self._told_handler_ns = handler_ns
        at_s = self._at_s()
        if sampler is None or not session.start_ns:
            return
        beside = self._of_others.read(at_s, (session.link.pid, self._converter.pid))
        sampling_ns = self._of_sampler.read(at_s, (sampler.pid,))
        if not self._control.is_due(at_s):
            return
        records_ns = self._records_ns()
        used = Used(
            program_ns - handler_ns - records_ns,
            sampling_ns,
            handler_ns,
            beside + records_ns + time.process_time_ns(),
        )
        # Timers tick as they were set.
        if self._control.look(at_s, used) and not sampler.uses_timers:
            sampler.set_rate(self._control.hz)
            self._changes.append((at_s, self._control.hz))
            self._say(LOWERED, self._lowered())

    def _at_s(self) -> float:
        """Seconds since the program began."""
        return (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - self._session.start_ns) / 1e9

    def _records_ns(self) -> int:
        """What the records have cost inside the program."""
        return round(self._session.link.records() * self._session.span_costs_ns[0])

    def finish(self) -> str | None:
        """The program has ended: say where the budget that was asked for was not enough. What of
        the run was recorded, in words; None: the budget has left nothing out.
        """
        whole = self._control.whole
        if self._asked.is_asked and self._sampler is None:
            self._say(UNKEPT, self._unkept())
        elif self._asked.is_asked and whole.share > self._asked.share:
            self._say(EXCEEDED, self._exceeded(whole))
        return None

    def _say(self, code: str, problem: Problem) -> None:
        """It takes the place of an earlier one of the same kind."""
        problems = self._session.problems
        problems[:] = [*(known for known in problems if known.code != code), problem]

    def _lowered(self) -> Problem:
        asked_hz = self._sampler.hz if self._sampler else 0
        (first_s, first_hz), *later = self._changes
        what = f"from {first_s:.1f} s on stacks were sampled at {first_hz} instead of {asked_hz} Hz"
        rates = [f"{hz} from {at_s:.1f} s on" for at_s, hz in later[-_MOST_SAID:]]
        if rates:
            between = "then at " if len(later) <= _MOST_SAID else "after more changes at "
            what += f", {between}{', '.join(rates)}"
        share = self._asked.share
        what += f", to keep the recording's own CPU time below {percent(share)} of the program's"
        remedy = f"{twice(share)} keeps more of them, --budget none all"
        lost = "some samples (sums are as exact, rare functions are seen less)"
        return Problem(STACKS, LOWERED, what, remedy, lost)

    def _unkept(self) -> Problem:
        what = (
            f"nothing follows the budget of {percent(self._asked.share)}: there are no stacks, and "
            "a recording with a window, or of a rank that a launcher starts, does not pause"
        )
        return Problem(OPERATORS, UNKEPT, what, "leave the window out, or the budget")

    def _exceeded(self, whole: Used) -> Problem:
        what = (
            f"the recording's own CPU time was {percent(whole.share)} of the program's while that "
            f"ran, above the budget of {percent(self._asked.share)}: stacks took "
            f"{percent(whole.stacks_share)}, and only their rate follows it"
        )
        return Problem(OPERATORS, EXCEEDED, what, "record fewer layers (--without)")


def twice(share: float) -> str:
    """The option that allows twice as much."""
    return f"--budget {percent(min(2 * share, 1.0)).replace(' ', '')}"


def percent(share: float) -> str:
    """As it is written in a sentence, with three digits."""
    text = three_digits(100 * share)
    return (text.rstrip("0").rstrip(".") if "." in text else text) + " %"

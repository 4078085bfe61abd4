"""What two recordings are divided by before their flame graphs are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.stacks.sample_reader import Choice
from layerscope.analyse.step_times import MeasuredSteps
from layerscope.model.errors import UsageError
from layerscope.model.units import duration

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

RUN, SECOND, STEP = "run", "second", "step"
PER = (RUN, SECOND, STEP)

# Of the recording and of the one before it.
Sides = tuple["Reader", "Reader"]
StepsOfSides = tuple[MeasuredSteps, MeasuredSteps]


class Compared(Struct, frozen=True):
    """How two recordings are compared: their weights for each `per`, one of `PER`; `units` are so
    many of these, here and before.
    """

    per: str
    units: float
    units_before: float


def how_compared(per: str | None, choice: Choice, sides: Sides, steps: StepsOfSides) -> Compared:
    """So many steps, or so much time, as `choice` leaves of each of the two.

    Without `per` a step is compared with a step where both have measured ones, else the run with
    the run: by their CPU time, since the time on the wall also holds what other programs took.

    UsageError when one of the two has nothing there.
    """
    if per is None:
        per = RUN
        if choice.steps is not None or all(of.measured.any() for of in steps):
            per = STEP
    if per == STEP:
        here, before = (_steps_in(choice, side, of) for side, of in zip(sides, steps, strict=True))
        return Compared(STEP, here, before)
    here, before = (_seconds_in(choice, side) for side in sides)
    if per == RUN:
        return Compared(RUN, 1.0, 1.0)
    if not (here and before):
        side = sides[1] if here else sides[0]
        unknown = side.run.name
        raise UsageError(f"{unknown} does not know how long it ran. Compare with --per run")
    return Compared(SECOND, here, before)


def _steps_in(choice: Choice, reader: Reader, steps: MeasuredSteps) -> float:
    """How many measured steps; of one that lies in the time that was chosen in part, that part."""
    name = reader.run.name
    step = steps.columns["step"][steps.measured]
    if not len(step):
        raise UsageError(
            f"measured steps are compared, and {name} has none. Leave out --step, or add --per run"
        )
    begin_ns = steps.columns["start_ns"][steps.measured] - reader.run.info.start_ns
    parts = np.ones(len(step))
    if choice.steps is not None:
        parts *= (step >= choice.steps.start) & (step < choice.steps.stop)
    if choice.seconds is not None:
        dur_ns = np.maximum(steps.columns["dur_ns"][steps.measured], 1)
        parts *= _overlap_ns(choice.seconds, begin_ns, begin_ns + dur_ns) / dur_ns
    if not parts.any():
        ends = f"from {duration(steps.begin_ns - reader.run.info.start_ns)} to "
        ends += duration(steps.end_ns - reader.run.info.start_ns)
        raise UsageError(
            f"{name} has no measured step in what is chosen: its measured steps are {step.min()} "
            f"to {step.max()}, {ends}. Choose steps (--step, --time) that both recordings have"
        )
    return float(parts.sum())


def _seconds_in(choice: Choice, reader: Reader) -> float:
    """For how long it ran; 0 where that is not known."""
    wall_ns = reader.run.info.program.wall_ns
    if choice.seconds is None or not wall_ns:
        return wall_ns / 1e9
    inside_ns = float(_overlap_ns(choice.seconds, np.zeros(1), np.full(1, wall_ns))[0])
    if not inside_ns:
        raise UsageError(
            f"{reader.run.name} has nothing in the time that is chosen: it ran "
            f"{duration(wall_ns)}. Choose a time (--time) that both recordings have"
        )
    return inside_ns / 1e9


def _overlap_ns(
    seconds: tuple[float, float], begin_ns: NDArray[Any], end_ns: NDArray[Any]
) -> NDArray[np.float64]:
    """How much of each of these stretches of time lies between `seconds`."""
    first_ns, last_ns = (1e9 * at for at in seconds)
    begins = np.maximum(begin_ns, first_ns)
    ends = np.minimum(end_ns, last_ns)
    inside: NDArray[np.float64] = ends - begins
    return inside.clip(min=0)

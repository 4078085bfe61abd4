"""The line of the summary about the time of a step in which its thread ran no operator."""

from __future__ import annotations

from layerscope.analyse.step_times import StepTimes
from layerscope.analyse.summary import OperatorRow, OperatorTimes, Summary
from layerscope.model.frameworks import launches
from layerscope.show.summary_words import step_noun

_IDLE, _IDLE_WITHOUT_PYTHON = "no operator running: Python", "no operator running"
_IDLE_OR_WAITING = "no operator running: Python or a wait"


def idle_row(summary: Summary) -> OperatorRow | None:
    """The time of a step in which its thread ran no operator; None where it is not known."""
    times, steps = summary.operators, summary.steps
    if times is None or steps is None or times.idle_ns is None:
        return None
    name = _IDLE_OR_WAITING if _waits_for_operators(times, steps) else _IDLE
    if not summary.info.has_python:
        name = _IDLE_WITHOUT_PYTHON
    share = times.idle_ns / max(steps.detailed_ns, 1)
    return OperatorRow(name, times.idle_ns, share, 0)


def _waits_for_operators(times: OperatorTimes, steps: StepTimes) -> bool:
    """Whether another thread executes what that of a step asks for: what is launched, or a run of a
    session.
    """
    is_launched = any(launches().fullmatch(row.name) for row in times.rows)
    return is_launched or step_noun(steps) == "request"

"""The lines of the summary about steps: length, phases, kinds of work, and how steady they are."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.call_shapes import CallsOfShape
from layerscope.analyse.generation import Generation
from layerscope.analyse.module_times import ModuleTimes
from layerscope.analyse.step_times import StepTimes
from layerscope.analyse.summary import OperatorTimes
from layerscope.model import units
from layerscope.model.layers import ANSWERING
from layerscope.model.units import percent
from layerscope.show.screen import printable
from layerscope.show.summary_words import LEAST_SHOWN, MODULE, WIDTH, plural, scale, step_noun
from layerscope.show.terminal import shortened

_BAR = 12
# Of the bars by kind of work, so that the facts fit beside them.
_KINDS_WIDTH = 42
_RULES = {
    "mark": "what was marked as one",
    "optimizer": "one call of the optimizer",
    "loader": "one batch of the data loader",
    "served": "what the server or the program marks",
    "request": "one pass through the modules",
}
_METHOD = 40
_SHAPE = 40
# A median further than this from the mean is worth saying, and so is self time outside the steps.
_SKEWED = 0.1


def step_and_phases(steps: StepTimes) -> list[str]:
    """How long a step takes and its phases in one line, or in two where that is too long."""
    if not _has_phases(steps):
        return [step_line(steps)]
    divisor, _ = scale(steps.mean_ns)
    parts = []
    for phase, spent_ns in steps.phases_ns.items():
        if spent_ns >= LEAST_SHOWN * divisor:
            spent = units.three_digits(spent_ns / divisor)
            parts.append(f"{phase} {spent}")
    phases = "  ".join(parts)
    line = step_line(steps)
    both = f"{line}   {phases}"
    if len(both) <= WIDTH:
        return [both]
    return [line, f"  {phases}"]


def kind_lines(times: OperatorTimes | None) -> list[str]:
    """A bar for each kind of work; nothing where no primitives were recorded."""
    if times is None or not times.kinds:
        return []
    name = max(len(kind.name) for kind in times.kinds)
    bar = _KINDS_WIDTH - name - 10
    return [
        f"  {kind.name:<{name}}  {percent(kind.share):>4}  {'#' * round(bar * kind.share):<{bar}}"
        for kind in times.kinds
    ]


def what_a_step_is(
    steps: StepTimes, modules: ModuleTimes | None, generation: Generation | None = None
) -> Iterator[str]:
    """Sentences that say what was taken for a step."""
    if steps.rule not in _RULES:
        return
    what = _RULES[steps.rule]
    passes = "one pass through"
    if steps.rule == "request" and step_noun(steps) == "request":
        what, passes = "one run of a session", "one run of"
    if steps.rule == "request" and modules and modules.root:
        what = f"{passes} {shortened(printable(modules.root), MODULE)}"
    if generation and generation.requests == steps.measured:
        what = f"one of {shortened(printable(generation.method), _METHOD)}"
    if steps.launch:
        what = f"one call of {shortened(printable(steps.launch), MODULE)}"
    yield f"a {step_noun(steps)} is {what}"
    if steps.launch:
        yield "calls return before they are executed: layerscope table dispatch"
    if steps.missing:
        verb = "was" if steps.missing == 1 else "were"
        yield f"{steps.missing:,} more {verb} under way while nothing was recorded"
    if steps.rule in ANSWERING and step_noun(steps) != "step":
        typical = (
            f", half of them within {units.duration(steps.p50_ns)}" if _is_skewed(steps) else ""
        )
        at_once = f", up to {steps.at_once} at a time" if steps.at_once > 1 else ""
        a_second = units.three_digits(steps.per_second)
        yield f"{a_second} {step_noun(steps)}s a second{at_once}{typical}"
    if steps.rule == "served":
        yield from _waits(steps)
    if generation:
        yield from _tokens(generation, step_noun(steps))


def _waits(steps: StepTimes) -> Iterator[str]:
    """What a request does while no call of its own runs."""
    own = percent(steps.phases_ns["forward"] / max(steps.mean_ns, 1))
    others = percent(steps.others_ns / max(steps.mean_ns, 1))
    yield f"of it {own} in its calls, {others} while only others' ran"


def _tokens(generation: Generation, noun: str) -> Iterator[str]:
    """How fast a model generates; a pass of it is a token of each sequence."""
    passes = units.amount(generation.passes)
    yield (
        f"{passes} {plural('token', generation.passes)} a {noun}, "
        f"{units.amount(generation.per_second)} a second"
    )
    further = (
        f", each further one {units.duration(generation.further_ns)}"
        if generation.further_ns
        else ""
    )
    yield f"the first token takes {units.duration(generation.first_ns)}{further}"


def shape_lines(by_shape: list[CallsOfShape], noun: str) -> Iterator[str]:
    """A line for each shape of calls, most time first."""
    for one in by_shape:
        shape = shortened(printable(one.shape), _SHAPE)
        yield (
            f"  of {shape}: {one.calls:,} {plural(noun, one.calls)}, {percent(one.share)} of the "
            f"time, p50 {units.duration(one.p50_ns)}, p95 {units.duration(one.p95_ns)}"
        )


def step_line(steps: StepTimes) -> str:
    """How long a step takes."""
    divisor, unit = scale(steps.mean_ns)
    also = [f"p95 {units.three_digits(steps.p95_ns / divisor)}"]
    if step_noun(steps) == "request":
        shown = (("p50", steps.p50_ns), ("p90", steps.p90_ns))
        also = [f"{name} {units.three_digits(ns / divisor)}" for name, ns in shown]
    if step_noun(steps) != "step":
        also.append(f"p99 {units.three_digits(steps.p99_ns / divisor)}")
    elif _is_skewed(steps):
        also.insert(0, f"p50 {units.three_digits(steps.p50_ns / divisor)}")
    return (
        f"A {step_noun(steps)} takes {units.three_digits(steps.mean_ns / divisor)} {unit} "
        f"({', '.join(also)})"
    )


def _is_skewed(steps: StepTimes) -> bool:
    """Whether a few steps took much longer or shorter than most."""
    difference_ns = abs(steps.p50_ns - steps.mean_ns)
    allowed_ns = _SKEWED * steps.mean_ns
    return difference_ns > allowed_ns


def _has_phases(steps: StepTimes) -> bool:
    """A program without operators has the phase `other` alone, which says nothing."""
    return any(spent_ns for phase, spent_ns in steps.phases_ns.items() if phase != "other")


def phase_lines(steps: StepTimes) -> list[str]:
    """A line for each phase of a step."""
    if not _has_phases(steps):
        return []
    divisor, unit = scale(steps.mean_ns)
    lines = []
    for phase, spent_ns in steps.phases_ns.items():
        if step_noun(steps) != "step" and not spent_ns:
            continue  # a call has no loader and no optimizer
        share = spent_ns / max(steps.mean_ns, 1)
        bar = "#" * round(_BAR * share)
        lines.append(
            f"  {phase:<9}  {units.three_digits(spent_ns / divisor):>5} {unit}  "
            f"{percent(share):>5}  {bar:<{_BAR}}"
        )
    return lines


def steady(steps: StepTimes | None) -> str:
    """Whether the steps drift, and how many are slow."""
    if steps is None:
        return ""
    if steps.drift is None:
        return f"too few {step_noun(steps)}s to say whether they are steady"
    noun, measured = step_noun(steps), steps.measured
    trend = (
        f"{noun}s are {percent(abs(steps.drift - 1))} {'slower' if steps.drift > 1 else 'faster'}"
    )
    drifts = abs(steps.drift - 1) > _SKEWED
    if not steps.outliers:
        return (
            f"{trend} in the last third, no outliers"
            if drifts
            else f"{noun}s are steady: no drift, no outliers"
        )
    counted = f"{steps.outliers:,} of {measured:,}"
    if drifts:
        return f"{trend} in the last third, {counted} above 2x the median"
    # Of calls the 99th percentile is said.
    slowest = f", up to {units.duration(steps.slowest_ns)}" if noun == "step" else ""
    return f"no drift; {counted} {plural(noun, measured)} above 2x the median{slowest}"

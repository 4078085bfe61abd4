"""The conditions of `--fail-if`: `step>5%` fails when the step of B is surely more than 5 % slower
than that of A.

A condition fails only when the whole interval of the change lies above its limit: a noisy machine
makes the interval wide and lets it pass. Without an interval nothing is sure, so nothing fails, and
that is said.
"""

from __future__ import annotations

import difflib
import math
import re

from msgspec import Struct

from layerscope.analyse.diff import MEMORY, NO_MEMORY, Diff, Rows
from layerscope.analyse.diff.peaks import Peaks
from layerscope.analyse.diff.quantities import KERNEL, MODULE, NAMED, OPERATOR, PHASE, RUN, STEP
from layerscope.model import units
from layerscope.model.errors import UsageError

_FORM = re.compile(r"^\s*(?P<name>.+?)\s*>\s*(?P<limit>\d+(?:\.\d+)?)\s*%\s*$", re.DOTALL)
_FORMS = (
    "step>5%, phase.backward>10%, operator:aten::mm>20%, module:Net.conv1>10%, kernel:NAME>5% or "
    "peak>5%"
)
_MOST_NAMES = 5
# The peak of live memory.
PEAK = "peak"


class Condition(Struct, frozen=True):
    """One `--fail-if`: the row `name` of kind `what`, and how much slower it may be, as a
    fraction.
    """

    text: str
    what: str
    name: str
    limit: float

    @property
    def view(self) -> str:
        """The view that has the row."""
        views = {OPERATOR: "operators", MODULE: "modules", KERNEL: "kernels", PEAK: MEMORY}
        return views.get(self.what, "steps")


class Judgement(Struct, frozen=True):
    """What became of a condition; `is_sure` is false where no interval exists."""

    sentence: str
    failed: bool
    is_sure: bool = True


def parse(text: str) -> Condition:
    """The condition that `text` states; UsageError that shows the forms."""
    found = _FORM.match(text)
    if found:
        name, limit = found["name"], float(found["limit"]) / 100
        if name in (STEP, RUN, PEAK):
            return Condition(text.strip(), name, name, limit)
        if name.startswith("phase."):
            return Condition(text.strip(), PHASE, name, limit)
        what, _, rest = name.partition(":")
        if what in NAMED and rest:
            return Condition(text.strip(), what, rest, limit)
    raise UsageError(f"--fail-if {text!r} cannot be understood. It looks like {_FORMS}")


def judge(condition: Condition, diff: Diff) -> Judgement:
    """Whether `condition` failed in `diff`; UsageError when it names what neither recording has."""
    if condition.what == PEAK:
        return _judge_peak(condition, diff.peaks)
    rows = diff.rows.get(condition.what)
    if rows is not None and not len(rows.names):
        rows = None
    place = -1
    if rows is not None:
        place = rows.place(condition.name)
    if rows is None or place < 0:
        unknown = _unknown(condition, diff, rows)
        raise UsageError(f"--fail-if {condition.text!r}: {unknown}")
    text = condition.text
    change = rows.change
    measured = _measured(rows, place)
    if math.isnan(change.error[place]):
        return Judgement(
            f"{text}: not failed, because nothing is sure without an interval{measured}",
            failed=False,
            is_sure=False,
        )
    # What only B has is above any percentage of nothing, however uneven it is.
    exceeds = change.exceeds(condition.limit)
    failed = bool(exceeds[place]) or not rows.in_a[place]
    verdict = "not failed"
    if failed:
        verdict = "failed"
    return Judgement(f"{text}: {verdict}{measured}", failed)


def _judge_peak(condition: Condition, peaks: Peaks | str) -> Judgement:
    """Of the peak of live memory; UsageError where it is not known exactly."""
    if not isinstance(peaks, Peaks):
        raise UsageError(f"--fail-if {condition.text!r}: {peaks or NO_MEMORY}")
    for side, blocks in (("A", peaks.a), ("B", peaks.b)):
        if blocks.missing:
            reason = f"the peak of {side} is at least {units.size(blocks.bytes)}, not more is known"
            raise UsageError(f"--fail-if {condition.text!r}: {reason}: {blocks.missing}")
    before, after = peaks.a.bytes, peaks.b.bytes
    most = (1 + condition.limit) * before
    verdict = "failed" if after > most else "not failed"
    sizes = f"{units.size(before)} in A, {units.size(after)} in B"
    sentence = f"{condition.text}: {verdict}; {sizes}"
    return Judgement(sentence, failed=after > most)


def _measured(rows: Rows, place: int) -> str:
    """The change and its interval, as the end of a sentence."""
    if not rows.in_a[place]:
        return "; it is not in A."
    if not rows.in_b[place]:
        return "; it is not in B."
    change = rows.change
    if math.isnan(change.difference[place]):
        return "; how long it took is not known on both sides."
    relative = change.relative()[place]
    if math.isnan(relative):
        return "; it takes no time in A."
    lowest, highest = change.relative_limits()
    low = lowest[place]
    high = highest[place]
    interval = ""
    if not math.isnan(low):
        interval = f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"; it changed by {100 * relative:+.1f} %{interval}."


def _unknown(condition: Condition, diff: Diff, rows: Rows | None) -> str:
    if rows is None and condition.what in (STEP, PHASE):
        return (
            "the recordings are compared as a whole, because not both have steps. Use run, "
            "operator: or module:"
        )
    if rows is None and condition.what == RUN:
        return "the recordings are compared step by step. Use step"
    if rows is None:
        return f"there are no {condition.what}s to compare"
    near = difflib.get_close_matches(condition.name, rows.names.tolist(), _MOST_NAMES, 0.3)
    names = near or rows.names[:_MOST_NAMES].tolist()
    return (
        f"there is no {condition.what} {condition.name!r}. Some that there are: {', '.join(names)}"
    )

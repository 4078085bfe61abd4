"""What must be said beside a comparison: what was compared, and what is not the same but should
be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerscope.analyse.diff.intervals import FEWEST_STEPS, MEAN, MEDIAN, MOST_BLOCKS
from layerscope.analyse.diff.quantities import MEASURED, ComparedSteps
from layerscope.model.secrets import MASK
from layerscope.recording.run import RunInfo

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

SIDES = "AB"
# What a host is called, of the facts that `run.json` keeps about it.
_HOST = {
    ("name",): "host",
    ("cpu", "granted"): "usable CPUs",
    ("cpu", "model"): "CPU",
    ("kernel", "release"): "kernel",
    ("memory", "total_bytes"): "memory (bytes)",
    ("cpu", "governor"): "governor",
    ("memory", "thp"): "transparent huge pages",
    ("isa", "amx"): "AMX",
}
_OTHER_STATISTIC = {
    MEDIAN: "The median is compared; --mean compares the mean.",
    MEAN: "The median, which is compared without --mean, hides what disturbed them.",
}
# The mean of the steps is this many times their median: something disturbed them.
_UNEVEN = 1.25


def sentences(
    labels: tuple[str, str],
    steps: Sequence[ComparedSteps],
    per_step: bool,
    statistic: str,
    a: RunInfo,
    b: RunInfo,
) -> list[str]:
    """What A and B are, what of them is compared, and each thing that differs between them."""
    said = [
        f"{letter} is {label}{_counted(found)}."
        for letter, label, found in zip(SIDES, labels, steps, strict=True)
    ]
    said.append(_compared(steps, per_step, statistic))
    if per_step and any(found.measured < FEWEST_STEPS for found in steps):
        said.append(
            f"There are no intervals: they need at least {FEWEST_STEPS} steps on each side."
        )
    said += [
        f"Not the same: {what}: {left} in A, {right} in B."
        for what, left, right in _different(steps, a, b)
    ]
    return said


def uneven(readers: Sequence[Reader], statistic: str) -> list[str]:
    """The sides of which a few steps took much longer than the others: mean and median tell
    different stories.
    """
    query = f"WITH {MEASURED} SELECT avg(dur_ns), median(dur_ns) FROM measured"
    said = []
    for letter, reader in zip(SIDES, readers, strict=True):
        mean, median = reader.connection().sql(query).fetchall()[0]
        if median and mean > _UNEVEN * median:
            said.append(
                f"The steps of {letter} are uneven: their mean is {mean / median:.1f} times their "
                f"median. {_OTHER_STATISTIC[statistic]}"
            )
    return said


def _counted(found: ComparedSteps) -> str:
    if not found.measured:
        return ", without steps"
    steps = "step" if found.measured == 1 else "steps"
    text = f": {found.measured:,} {steps}"
    if found.warmup:
        text += f" after {found.warmup:,} of warm-up"
    if found.processes > 1:
        text += f", each the mean over {found.processes} processes"
    if found.left_out:
        others = f"{found.left_out} processes"
        if found.left_out == 1:
            others = "1 process"
        text += f" ({others} with fewer or other steps left out)"
    return text


def _compared(steps: Sequence[ComparedSteps], per_step: bool, statistic: str) -> str:
    if per_step:
        return (
            f"Compared is the {statistic} of the steps; operators by their self time, modules by "
            "that of the operators in them, forward and backward. Intervals: 95 % for all rows of "
            f"a kind, from up to {MOST_BLOCKS} blocks of steps."
        )
    without = [letter for letter, found in zip(SIDES, steps, strict=True) if not found.measured]
    verb = "has" if len(without) == 1 else "have"
    return (
        f"Compared is the whole run, because {' and '.join(without)} {verb} no steps: there are no "
        "intervals, and whether a change is more than noise is unknown."
    )


def _different(
    steps: Sequence[ComparedSteps], a: RunInfo, b: RunInfo
) -> list[tuple[str, str, str]]:
    rules = [" and ".join(found.rules) or "none" for found in steps]
    pairs: list[tuple[str, Any, Any]] = [("what a step is", rules[0], rules[1])]
    if all(found.processes for found in steps):
        pairs.append(("processes with steps", steps[0].processes, steps[1].processes))
    pairs.append(("layerscope", a.layerscope, b.layerscope))
    pairs += _values(a.versions, b.versions)
    for names, word in _HOST.items():
        pairs.append((word, a.host_fact(*names), b.host_fact(*names)))
    is_imported = bool(a.imported_from or b.imported_from)  # such a file does not tell all
    unset = "" if is_imported else "not set"
    pairs += _values(a.environment, b.environment, missing=unset)
    if not is_imported:
        pairs += _values(_layer_states(a), _layer_states(b), missing="not there")
    # What is not known, or was taken out before the recording was shared, is not a difference.
    unknown = ("", None, MASK)
    return [
        (what, _text(left), _text(right))
        for what, left, right in pairs
        if left != right and left not in unknown and right not in unknown
    ]


def _layer_states(info: RunInfo) -> dict[str, str]:
    states = {}
    for layer in info.layers:
        quantity = f"layer {layer.name}"
        states[quantity] = layer.state
    return states


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _values(
    a: Mapping[str, str], b: Mapping[str, str], missing: str = ""
) -> list[tuple[str, Any, Any]]:
    """Every name of either side, with the value on each side."""
    found = []
    for name in sorted({*a, *b}):
        found.append((name, a.get(name, missing), b.get(name, missing)))
    return found

"""What a rule says: one thing that the program has and that costs time, with its evidence and its
price.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from layerscope.model.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

# How sure it is that the time is spent on what the finding names.
CERTAIN, LIKELY, LOW = "certain", "likely", "low"
# What a remedy changes: variables of the environment, arguments of the program, or its code, which
# only a person can edit.
ENVIRONMENT, ARGUMENTS, EDIT = "environment", "arguments", "edit"
# What a price is of.
STEP, RUN = "step", "run"


class Threshold(Struct, frozen=True):
    """A number that a rule compares with, its unit, and why it is that number."""

    name: str
    value: float
    unit: str
    why: str


class Price(Struct, frozen=True):
    """The most that removing the cause can save, in ns of a step (or of the run, `per`), with a
    95 % interval; `share`: of the step (or run). Prices of several findings overlap. `cost_share`:
    what was measured, the price without its allowance for after-effects, as a share. `samples`: of
    how many samples of CPU time it is made, None where it was measured.
    """

    value_ns: float
    low_ns: float
    high_ns: float
    share: float
    cost_share: float
    per: str = STEP
    samples: int | None = None

    @property
    def low_share(self) -> float:
        """The lower end as a share of the step, or of the run."""
        return self.share * self.low_ns / self.value_ns if self.value_ns else 0.0


class Where(Struct, frozen=True):
    """The place in the program; empty where it is not one place."""

    module: str = ""
    operator: str = ""
    line: str = ""
    thread: str = ""

    def words(self, folder: str = "") -> str:
        """All that is known, most exact first; files below `folder` are named from there."""
        line = self.line.removeprefix(f"{folder}/") if folder else self.line
        return ", ".join(filter(None, (line, self.operator, self.module, self.thread)))


class Remedy(Struct, frozen=True):
    """One change that may help. `variables`: those of the environment that make it; `arguments`:
    what is added to the command. Of an edit there is only `what`.
    """

    what: str
    kind: str = EDIT
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


class Evidence(Struct, frozen=True):
    """The question that shows it, over the tables and the views of `workload`, and its answer."""

    sql: str
    rows: pa.Table


class Finding(Struct, frozen=True):
    """`title` is one sentence that says what the program has, never the cure. `notes`: what
    qualifies it. `is_below`: a threshold of the rule says that it is not worth showing.
    `proven`: the verdict of --prove, as people read it.
    """

    rule: str
    title: str
    price: Price
    where: Where = Where()
    remedies: tuple[Remedy, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    certainty: str = CERTAIN
    notes: tuple[str, ...] = ()
    is_below: bool = False
    proven: str = ""


class Limits:
    """The thresholds of one rule, with what the user has changed."""

    def __init__(self, thresholds: tuple[Threshold, ...], changed: Mapping[str, float]) -> None:
        values = {one.name: one.value for one in thresholds}
        values.update(changed)
        self._values = values

    def __getitem__(self, name: str) -> float:
        """The threshold called `name`."""
        return self._values[name]


def changed_limits(texts: list[str], known: Mapping[str, tuple[Threshold, ...]]) -> Changes:
    """By rule the thresholds that `RULE.THRESHOLD=VALUE` set. UsageError for others."""
    changes: Changes = {}
    names = []
    for one, limits in known.items():
        for limit in limits:
            names.append(f"{one}.{limit.name}")
    for text in texts:
        name, _, number = text.partition("=")
        rule, _, threshold = name.partition(".")
        if f"{rule}.{threshold}" not in names:
            meant = did_you_mean(name, names)
            raise UsageError(
                f"--set {text}: there is no threshold {name!r}.{meant} "
                "`layerscope findings --explain RULE` lists those of a rule"
            )
        changed = changes.setdefault(rule, {})
        try:
            changed[threshold] = float(number)
        except ValueError as error:
            raise UsageError(f"--set {text}: {number!r} is not a number") from error
    return changes


Changes = dict[str, dict[str, float]]

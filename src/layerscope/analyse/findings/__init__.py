"""Findings: what a program has that costs it time, what removing that can save at most, and the
evidence.

A rule is a file in `rules/`, found by its folder. Its name says what the program has, never the
cure. It has a docstring, which is its page in `docs/findings/`, and

    NEEDS       what must be recorded (`workload.NEEDS`); where something is missing the rule is
                skipped, and the reason is said
    THRESHOLDS  its numbers, each with unit and reason
    find        (workload, limits) -> the findings; those of less than 2 % of a step are not shown,
                but listed as looked at

A price counts only time of the thread that makes the steps, so what another thread hides costs
nothing. Findings are in the order of the lower ends of their prices.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast
from weakref import WeakKeyDictionary

from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.analyse.findings import rules
from layerscope.analyse.findings.contention import Contention
from layerscope.analyse.findings.finding import LOW, Finding, Limits, Threshold
from layerscope.analyse.findings.workload import Workload
from layerscope.model.errors import LayerscopeError, UsageError, did_you_mean
from layerscope.model.events import Problem
from layerscope.recording.proofs import REFUTED, Proof, proofs_of

if TYPE_CHECKING:
    from layerscope.analyse.findings.span_pass import SpanPass
    from layerscope.recording.reader import Reader

# Less of a step than this is not worth a change.
LEAST_SHARE = 0.02
# So few may be chance.
FEWEST_SAMPLES = 5


# What was found, as long as somebody has the recording open.
_FOUND: WeakKeyDictionary[Reader, RunFindings] = WeakKeyDictionary()


class Rule(Protocol):
    """What a file of `rules/` provides."""

    NEEDS: tuple[str, ...]
    THRESHOLDS: tuple[Threshold, ...]

    def find(self, workload: Workload, limits: Limits) -> Iterator[Finding]:
        """What of this the program has."""


class LookedAt(Struct):
    """A rule that found nothing worth showing, and the largest share that it saw."""

    rule: str
    share: float = 0.0
    title: str = ""


class RunFindings(Struct):
    """`found` are worth a try, the best first; `skipped`: rules that could not judge, and why."""

    found: list[Finding] = field(default_factory=list)
    looked_at: list[LookedAt] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    refuted: list[Proof] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    contention: Contention | None = None
    about: str = ""  # which process the findings are of, where there are several
    step_ns: float = 0.0  # how long a step takes on average, or the run
    folder: str = ""  # where the program ran


@cache
def names() -> tuple[str, ...]:
    """The names of the rules."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(rules.__path__)))


def load(name: str) -> Rule:
    """The rule `name`; UsageError that lists the rules when there is none."""
    if name not in names():
        meant = did_you_mean(name, names())
        raise UsageError(f"there is no rule {name!r}.{meant} The rules are {', '.join(names())}")
    return cast(Rule, importlib.import_module(f"{rules.__name__}.{name}"))


def thresholds() -> dict[str, tuple[Threshold, ...]]:
    """Those of every rule."""
    return {name: load(name).THRESHOLDS for name in names()}


def find(
    reader: Reader,
    chosen: list[str] | None = None,
    changes: Mapping[str, Mapping[str, float]] = {},
    spans: SpanPass | None = None,
) -> RunFindings:
    """What the rules (`chosen`: only these) say of `reader`'s recording. `changes`: thresholds by
    rule. `spans`: a pass over the spans of the measured steps, where one was made already.
    """
    workload = Workload(reader, spans)
    proofs = {proof.rule: proof for proof in proofs_of(reader.run)}
    every = RunFindings(
        contention=workload.contention,
        about=workload.about,
        step_ns=workload.mean_ns,
        folder=reader.run.info.cwd,
    )
    for name in chosen or names():
        rule = load(name)
        missing = workload.missing(rule.NEEDS)
        if missing:
            every.skipped[name] = missing
            continue
        try:
            found = list(rule.find(workload, Limits(rule.THRESHOLDS, changes.get(name, {}))))
        except Exception as error:  # one rule must not hide what the others found
            if isinstance(error, LayerscopeError):
                raise
            every.problems.append(_failed(name, error))
            continue
        _add(every, found, name, proofs.get(name))
    every.found.sort(key=lambda one: -one.price.low_ns)
    return every


def found_once(reader: Reader, spans: SpanPass | None = None) -> RunFindings:
    """All that the rules say of `reader`'s recording, worked out when it is first asked for.
    `spans`: as in `find`.
    """
    if reader not in _FOUND:
        _FOUND[reader] = find(reader, spans=spans)
    return _FOUND[reader]


def are_found(reader: Reader) -> bool:
    """Whether `found_once` has its answer."""
    return reader in _FOUND


def explained(name: str) -> str:
    """The page of a rule: its docstring, and its thresholds."""
    rule = load(name)
    page = (rule.__doc__ or "").strip()
    lines = [name, "", page.replace("**", ""), ""]
    for one in rule.THRESHOLDS:
        lines.append(f"{one.name} = {one.value:g} {one.unit}: {one.why}")
    return "\n".join(lines).rstrip() + "\n"


def _add(every: RunFindings, found: list[Finding], name: str, proof: Proof | None) -> None:
    """Sort what one rule found into what is shown and what was looked at. What was refuted is not
    shown again.
    """
    shown = [one for one in found if _is_worth_showing(one)]
    if proof is not None and shown:
        if proof.verdict == REFUTED:
            every.refuted.append(proof)
            return
        shown = [replace(one, proven=proof.words) for one in shown]
    if every.contention and every.contention.is_busy:
        note = every.contention.sentence
        shown = [replace(one, certainty=LOW, notes=(*one.notes, note)) for one in shown]
    every.found += shown
    if not shown:
        most = max(found, key=lambda one: one.price.share, default=None)
        every.looked_at.append(
            LookedAt(name, most.price.share, most.title) if most else LookedAt(name)
        )


def _is_worth_showing(one: Finding) -> bool:
    """Whether it costs enough, by enough samples, and surely something."""
    price = one.price
    if one.is_below or price.share < LEAST_SHARE:
        return False
    if price.samples is not None and price.samples < FEWEST_SAMPLES:
        return False
    return price.low_ns > 0


def _failed(name: str, error: Exception) -> Problem:
    what = f"the rule {name} failed: {type(error).__name__}: {error}"
    return Problem("findings", "rule_failed", what, "report it; the other rules have run", name)

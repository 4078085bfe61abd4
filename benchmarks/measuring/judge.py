"""Whether what a tool shows is the truth: errors, their limit, and how often intervals cover it.

A difference is beyond the limit where it is more than 5 % of the truth, and more than 2.5 sampling
errors at 100 samples a second. What has less than 10 % of its program, in truth and as shown, is
not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from measuring.planted import PlantedTruth
from measuring.shown import ShownTime, ShownTimes

TOLERANCE = 0.05
SAMPLING_ERRORS = 2.5
HZ = 100
JUDGED_SHARE = 0.10
COVERAGE = 0.93
OURS = "layerscope"


@dataclass
class Claim:
    """One function, line or wait of a program, in all runs."""

    program: str
    kind: str
    name: str
    truths: dict[str, list[float]] = field(default_factory=dict)  # seconds, by tool
    wholes: dict[str, list[float]] = field(default_factory=dict)
    shown: dict[str, list[ShownTime]] = field(default_factory=dict)

    def add(self, tool: str, truth: float, whole: float, reading: ShownTime) -> None:
        """One run under a tool."""
        self.truths.setdefault(tool, []).append(truth)
        self.wholes.setdefault(tool, []).append(whole)
        self.shown.setdefault(tool, []).append(reading)

    def finding(self, tool: str) -> MeanError | None:
        """Over all runs; none if the tool does not tell it."""
        if tool not in self.shown:
            return None
        runs = len(self.shown[tool])
        return MeanError(
            sum(self.truths[tool]) / runs,
            sum(one.seconds for one in self.shown[tool]) / runs,
            sum(self.wholes[tool]) / runs,
            runs,
        )

    def covered(self, tool: str = OURS) -> tuple[int, int]:
        """In how many runs the interval has the truth, and how many state one."""
        pairs = zip(self.truths.get(tool, []), self.shown.get(tool, []), strict=True)
        stated = [
            one.low <= truth <= one.high
            for truth, one in pairs
            if one.low is not None and one.high is not None
        ]
        return sum(stated), len(stated)


@dataclass(frozen=True)
class MeanError:
    """Mean seconds of `runs` runs: in truth, as shown, and of the whole program."""

    truth: float
    shown: float
    whole: float
    runs: int

    @property
    def error(self) -> float:
        """Seconds that are shown too many."""
        return self.shown - self.truth

    @property
    def relative(self) -> float:
        """The error as a share of the truth."""
        return self.error / self.truth if self.truth > 0 else math.inf

    @property
    def limit(self) -> float:
        """How large the error may be."""
        largest = max(self.truth, self.shown)
        chance = sampling_error(largest, self.whole, self.runs)
        return max(TOLERANCE * self.truth, SAMPLING_ERRORS * chance)

    @property
    def is_judged(self) -> bool:
        """Whether it is large enough to be judged."""
        return max(self.truth, self.shown) >= JUDGED_SHARE * self.whole

    @property
    def is_beyond(self) -> bool:
        """Whether it is wrong."""
        return self.is_judged and abs(self.error) > self.limit

    @property
    def severity(self) -> float:
        """The error as a share of the program."""
        return abs(self.error) / self.whole


def sampling_error(seconds: float, whole: float, runs: int = 1) -> float:
    """The standard error, in seconds, of what HZ samples a second say of `seconds` of a `whole`, as
    the mean of `runs` runs; a sample at least.
    """
    samples = seconds * HZ
    share = min(seconds / whole, 1.0) if whole > 0 else 1.0
    return max(math.sqrt(samples * (1 - share) / runs), 1.0) / HZ


def claims_of(program: str, tool: str, truth: PlantedTruth, readings: ShownTimes) -> list[Claim]:
    """What one run under a tool says about everything that was planted."""
    found = []
    for kind, names in truth.times.items():
        for name, seconds in names.items():
            # Some versions of py-spy leave out the class.
            last = name.rpartition(".")[2]
            wanted = f"{name}|{last}" if tool == "py-spy" and "function" in kind else name
            reading = readings.of(kind, wanted)
            claim = Claim(program, kind, name)
            if reading is not None:
                claim.add(tool, seconds, truth.whole(kind), reading)
            if reading is not None or tool == OURS:  # what ours does not tell is a row, too
                found.append(claim)
    return found


def merged(claims: Sequence[Claim]) -> list[Claim]:
    """One claim for each name, of all runs and tools."""
    found: dict[tuple[str, str, str], Claim] = {}
    for one in claims:
        claim = found.setdefault(
            (one.program, one.kind, one.name), Claim(one.program, one.kind, one.name)
        )
        for tool, readings in one.shown.items():
            runs = zip(one.truths[tool], one.wholes[tool], readings, strict=True)
            for truth, whole, reading in runs:
                claim.add(tool, truth, whole, reading)
    return list(found.values())


def worse_than(claim: Claim, others: Sequence[str]) -> str:
    """The tool that is nearer to the truth than ours by more than the limit; empty if none is."""
    ours = claim.finding(OURS)
    if ours is None or not ours.is_judged:
        return ""
    best = ""
    smallest = abs(ours.relative)
    for tool in others:
        theirs = claim.finding(tool)
        if theirs is None or theirs.truth <= 0:
            continue
        if abs(theirs.relative) < smallest and (
            abs(ours.error) - abs(theirs.relative) * ours.truth > ours.limit
        ):
            best, smallest = tool, abs(theirs.relative)
    return best


def verdict(claim: Claim, others: Sequence[str]) -> str:
    """A word for the table."""
    ours = claim.finding(OURS)
    if ours is None:
        return "not told"
    if not ours.is_judged:
        return "small"
    worse = worse_than(claim, others)
    beyond = "BEYOND" if ours.is_beyond else "met"
    return f"{beyond}, {worse} is nearer" if worse else beyond


def coverage(claims: Sequence[Claim]) -> dict[str, tuple[int, int]]:
    """By kind: how many intervals have the truth, of how many."""
    found: dict[str, tuple[int, int]] = {}
    for claim in claims:
        inside, stated = claim.covered()
        if stated:
            before = found.get(claim.kind, (0, 0))
            found[claim.kind] = (before[0] + inside, before[1] + stated)
    return found

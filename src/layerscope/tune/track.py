"""What a race knows: what has been measured, who is still in, and what is left of the budget."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec import Struct

from layerscope.tune.journal import Journal
from layerscope.tune.measurement import Measurement
from layerscope.tune.objective import Objective
from layerscope.tune.setting import DEFAULT, Setting

# Runs the program once: (setting, round) -> what it took.
Runner = Callable[[Setting, int], Measurement]
# How a setting stands.
DEFAULT_ROW, LEADS, IN_RACE, OUT, DISQUALIFIED = (
    "default",
    "leads",
    "in race",
    "out",
    "disqualified",
)
# What a run is for.
RACE, FINAL = "race", "final"


class Refused(Exception):
    """There is nothing to compare with; the sentence says why."""


class Progress(Struct, frozen=True):
    """After one run of the program. `phase`: RACE or FINAL; `value`: as it was measured, None where
    it does not count; `racing`: how many settings are still in, the defaults not counted; `left_s`:
    at most this long it goes on.
    """

    phase: str
    stage: int
    stages: int
    round: int
    setting: Setting
    measurement: Measurement
    value: float | None
    racing: int
    left_s: float


class Means(Struct):
    """What a race works with. `clock` in seconds; `run_s`: how long a run takes under the defaults,
    0 if not known.
    """

    runner: Runner
    objective: Objective
    budget_s: float
    clock: Callable[[], float]
    journal: Journal | None = None
    tell: Callable[[Progress], None] | None = None
    run_s: float = 0.0


class RaceState:
    """The state of a race. It depends on the seed and on what the runs gave and took alone, not on
    the time of day.
    """

    def __init__(self, means: Means, seed: int, stages: int) -> None:
        self.objective = means.objective
        self.budget_s = means.budget_s
        self.spent_s = 0.0
        self.chance = random.Random(seed)
        self.settings = {DEFAULT.name: DEFAULT}
        # By name and round; of the race without the final.
        self.values: dict[str, dict[int, float]] = {DEFAULT.name: {}}
        self.gone: dict[str, tuple[str, str]] = {}  # OUT or DISQUALIFIED, and why
        self.racing = [DEFAULT]
        self.measurements: list[Measurement] = []
        self.notes: list[str] = []
        self.untried: list[str] = []  # for lack of time
        self.round = 0
        self.stage = 0
        self.stages = stages
        self._means = means
        self._took: dict[str, list[float]] = {}

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        return self.budget_s - self.spent_s

    def cost_s(self, setting: Setting) -> float:
        """How long a run of it takes in all, as far as that is known."""
        took = self._took.get(setting.name)
        if not took:
            took = self._took.get(DEFAULT.name)
        if not took:
            return self._means.run_s
        return sum(took) / len(took)

    def enter(self, settings: Sequence[Setting]) -> None:
        """These are in the race from now on, beside the defaults."""
        self.racing = [DEFAULT, *settings]
        for setting in settings:
            name = setting.name
            self.settings[name] = setting
            self.values.setdefault(name, {})

    def measure(self, setting: Setting, phase: str, left_s: float) -> float | None:
        """Run it once in this round; its value, None where that disqualifies it. `left_s`: at most
        until the end.

        Raises Refused where the defaults have no value.
        """
        measurement, took_s = self._made(setting)
        self.spent_s += took_s
        self._took.setdefault(setting.name, []).append(took_s)
        self.measurements.append(measurement)
        value = None if measurement.fault else self.objective.value(measurement)
        if value is None:
            self._disqualify(setting, measurement)
        if self._means.tell:
            shown = None if value is None else self.objective.shown(value)
            self._means.tell(
                Progress(
                    phase,
                    self.stage,
                    self.stages,
                    self.round,
                    setting,
                    measurement,
                    shown,
                    len(self.racing) - 1,
                    max(0.0, left_s - took_s),
                )
            )
        return value

    def _made(self, setting: Setting) -> tuple[Measurement, float]:
        means = self._means
        kept = means.journal.next(setting, self.round) if means.journal else None
        if kept is not None:
            return kept
        began_s = means.clock()
        measurement = means.runner(setting, self.round)
        took_s = means.clock() - began_s
        if means.journal:
            means.journal.add(measurement, took_s)
        return measurement, took_s

    def _disqualify(self, setting: Setting, measurement: Measurement) -> None:
        why = measurement.why or measurement.fault
        if not why:
            why = f"a run gave no value of {self.objective.name} above zero"
        if setting == DEFAULT:
            raise Refused(f"the program as it is has nothing to compare with: {why}")
        self.gone[setting.name] = DISQUALIFIED, why
        others = [other for other in self.racing if other.name != setting.name]
        self.racing = others

    def shuffled(self, settings: Sequence[Setting]) -> list[Setting]:
        """In the order of the next round."""
        return self.chance.sample(settings, len(settings))

    def ratios(self, name: str) -> list[float]:
        """Its values over those of the defaults in the same rounds."""
        values = self.values[name]
        against = self.values[DEFAULT.name]
        found = []
        for number in sorted(values):
            if number in against:
                ratio = values[number] / against[number]
                found.append(ratio)
        return found

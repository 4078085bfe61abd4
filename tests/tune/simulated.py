"""Races of programs that nobody runs: what a run takes is drawn, and the clock goes on by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.tune.journal import Journal, Question
from layerscope.tune.measurement import Measurement
from layerscope.tune.objective import Objective, objective
from layerscope.tune.race import Outcome, Progress, race
from layerscope.tune.setting import DEFAULT, Setting

WALL = objective("wall", has_steps=False)
QUESTION = Question(
    ("python", "train.py"), "/a/folder", {"objective": "wall"}, 1, "a machine, 2 CPUs", "0.1.0"
)


def settings(*names: str) -> list[Setting]:
    """One that sets a variable of its name, for each."""
    return [Setting(name, {name: "1"}) for name in names]


@dataclass
class Simulated:
    """`times`: how often as long a run takes with each part of a setting's name; what is not there
    takes as long.

    `cv`: standard deviation of the log-normal noise of each run over its mean; `round_cv`: of what
    a round has in common. `change`: of a measurement, before it is given.
    """

    times: Mapping[str, float] = field(default_factory=dict)
    cv: float = 0.0
    run_s: float = 5.0
    seed: int = 0
    round_cv: float = 0.0
    overhead_s: float = 0.0
    change: Callable[[Measurement], Measurement] = lambda measurement: measurement
    now_s: float = 1000.0
    runs: list[tuple[str, int]] = field(default_factory=list)

    def clock(self) -> float:
        """Seconds."""
        return self.now_s

    def run(self, setting: Setting, number: int) -> Measurement:
        """What it takes depends on the setting, the round and the seed alone, however often it is
        asked.
        """
        own = np.random.default_rng([self.seed, number, *setting.name.encode()])
        common = np.random.default_rng([self.seed, number])
        factor = float(np.prod([self.times.get(part, 1.0) for part in setting.name.split()]))
        wall_s = self.run_s * factor * _noise(own, self.cv) * _noise(common, self.round_cv)
        self.now_s += wall_s + self.overhead_s
        self.runs.append((setting.name, number))
        return self.change(Measurement(setting.name, number, wall_s, wall_s * 1.5, 1 << 28))

    def race(
        self, stages: Sequence[Sequence[Setting]], minutes: float = 10.0, objective: Objective = WALL, seed: int = 1,
        **more: Any,
    ) -> Outcome:  # fmt: skip
        """Race them."""
        return race(stages, self.run, objective, minutes * 60, clock=self.clock, seed=seed, **more)


def _noise(chance: np.random.Generator, cv: float) -> float:
    return float(np.exp(np.sqrt(np.log1p(cv**2)) * chance.standard_normal()))


def names(outcome: Outcome, state: str) -> set[str]:
    """Of the settings that stand so."""
    return {row.setting.name for row in outcome.standings if row.state == state}


def told(
    stages: Sequence[Sequence[Setting]], simulated: Simulated, **more: Any
) -> tuple[Outcome, list[Progress]]:
    """The race, and what it told on the way."""
    events: list[Progress] = []
    return simulated.race(stages, tell=events.append, **more), events


def journal(path: Path, question: Question = QUESTION) -> Journal:
    return Journal(path, question)


__all__ = ["DEFAULT", "QUESTION", "WALL", "Simulated", "journal", "names", "settings", "told"]

"""What is tried on this machine: the settings of all choices in their stages, crossed with the
values of --vary.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

from msgspec import Struct

from layerscope.model.errors import UsageError
from layerscope.tune import choices, presets
from layerscope.tune.choices import threads
from layerscope.tune.setting import DEFAULT, Setting, TuneContext

# More cannot be told apart in any budget that somebody waits for.
MOST_CANDIDATES = 64
_TITLES = {
    1: "threads and how they wait",
    2: "where threads and memory are, and who runs them",
    3: "memory",
}


class ChoiceModule(Protocol):
    """What a file of the folder `choices` provides."""

    __name__: str
    ORDER: int
    STAGE: int

    def choices(self, place: TuneContext) -> Iterator[Setting]:
        """Those worth trying at `place`."""


class Varied(Struct, frozen=True):
    """An option of the program, and the values to try."""

    option: str
    values: tuple[str, ...]


class Stage(Struct, frozen=True):
    """What is tried next to each other."""

    title: str
    settings: tuple[Setting, ...]


class SearchSpace(Struct, frozen=True):
    """`stages` with at least one setting each; `notes`: what could not be tried and why, in
    sentences.
    """

    stages: tuple[Stage, ...]
    notes: tuple[str, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Those of all stages, in their order."""
        found: list[Setting] = []
        for stage in self.stages:
            found += stage.settings
        return tuple(found)


def space(place: TuneContext, varied: Sequence[Varied] = ()) -> SearchSpace:
    """All that is worth trying at `place`.

    Raises UsageError where --vary makes more settings of the first stage than can be told apart.
    """
    of_stages, notes = ([list(presets.choices(place))], []) if place.presets else _chosen(place)
    values = list(_crossed([list(_values(one)) for one in varied]))
    first = of_stages[0]
    of_stages[0] = [*first, *values, *(one.together(value) for one in first for value in values)]
    count = len(of_stages[0])
    if count > MOST_CANDIDATES:
        raise UsageError(
            f"--vary makes {count} settings of the first stage, and at most "
            f"{MOST_CANDIDATES} can be told apart: give fewer values, or fewer options"
        )
    if values:
        notes.append(
            "where a value of --vary changes what a step does, such as a batch size, times of "
            "steps do not compare: take --metric with what the program prints for each second"
        )
    stages = [
        Stage(_TITLES.get(number, "more"), _fresh(place, one))
        for number, one in enumerate(of_stages, 1)
    ]
    return SearchSpace(tuple(stage for stage in stages if stage.settings), tuple(notes))


def parse_vary(text: str) -> Varied:
    """`--batch-size={8,16,32}` as it is given to --vary. Raises UsageError."""
    shape = (
        "--vary '--batch-size={8,16,32}' has an option of the program and values in braces, "
        "all in quotes"
    )
    option, equals, braces = text.partition("=")
    if not re.fullmatch(r"--?[^\s=-][^\s=]*", option):
        raise UsageError(f"--vary {text!r} does not begin with an option of the program: {shape}")
    if not equals or not (braces.startswith("{") and braces.endswith("}")):
        why = (
            "it has no braces: a shell takes them apart where there are no quotes"
            if equals
            else "it has no values"
        )
        raise UsageError(f"--vary {text!r} cannot be understood, {why}. {shape}")
    values = tuple(value.strip() for value in braces[1:-1].split(","))
    if not all(values):
        raise UsageError(f"--vary {text!r} has an empty value: {shape}")
    if double := next(
        (value for number, value in enumerate(values) if value in values[:number]), None
    ):
        raise UsageError(f"--vary {text!r} has the value {double} twice")
    return Varied(option, values)


def parse_all(texts: Iterable[str]) -> tuple[Varied, ...]:
    """Every --vary of a command line. Raises UsageError where one option comes twice."""
    found: dict[str, Varied] = {}
    for one in map(parse_vary, texts):
        if one.option in found:
            raise UsageError(
                f"--vary has {one.option} twice: put all values into one pair of braces"
            )
        found[one.option] = one
    return tuple(found.values())


def _chosen(place: TuneContext) -> tuple[list[list[Setting]], list[str]]:
    """The settings of each stage, and what could not be tried."""
    modules = sorted(_modules(), key=lambda module: (module.STAGE, module.ORDER, module.__name__))
    lists: dict[int, list[list[Setting]]] = {1: []}
    for module in modules:
        settings = list(module.choices(place))
        lists.setdefault(module.STAGE, []).append(settings)
    crossed = _crossed(lists.pop(1))
    of_stages = [[setting for setting in crossed if not _waits_alone(place, setting)]]
    for _, of_modules in sorted(lists.items()):
        of_stages.append(list(itertools.chain.from_iterable(of_modules)))
    notes: list[str] = []
    for module in modules:
        module_notes = getattr(module, "notes", _no_notes)
        notes += module_notes(place)
    return of_stages, notes


def _no_notes(place: TuneContext) -> Iterator[str]:
    yield from ()


def _modules() -> list[ChoiceModule]:
    found = []
    for entry in pkgutil.iter_modules(choices.__path__):
        name = f"{choices.__name__}.{entry.name}"
        module = importlib.import_module(name)
        choice = cast(ChoiceModule, module)
        found.append(choice)
    return found


def _values(varied: Varied) -> Iterator[Setting]:
    for value in varied.values:
        yield Setting(
            f"{varied.option}={value}",
            arguments={varied.option: value},
            because="asked for by --vary",
        )


def _crossed(lists: Sequence[Sequence[Setting]]) -> Iterator[Setting]:
    """All ways to take one or none of each list, but none of all; those with fewer parts first."""
    ways = itertools.product(*([DEFAULT, *settings] for settings in lists))
    for way in sorted(ways, key=lambda way: sum(part != DEFAULT for part in way)):
        parts = [part for part in way if part != DEFAULT]
        if parts:
            made = parts[0]
            for part in parts[1:]:
                made = made.together(part)
            yield made


def _waits_alone(place: TuneContext, setting: Setting) -> bool:
    """Whether it says how threads wait for each other, and there is one thread only."""
    waits = {"OMP_WAIT_POLICY", "KMP_BLOCKTIME"} & setting.variables.keys()
    return (
        bool(waits)
        and int(setting.variables.get("OMP_NUM_THREADS") or threads.default(place) or 0) == 1
    )


def _fresh(place: TuneContext, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Without those that start the program as it is started anyway, or as one before does."""
    seen = [(dict(place.environment), list(place.program))]
    kept = []
    for setting in settings:
        made = setting.environment(place.environment), setting.command(place.program)
        if made not in seen:
            seen.append(made)
            kept.append(setting)
    return tuple(kept)

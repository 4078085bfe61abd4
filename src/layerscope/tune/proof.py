"""Whether a change makes a program faster: the program as it is and with the change, in pairs, as
`layerscope tune` compares its best setting with the defaults.
"""

from __future__ import annotations

import shlex
import time
from datetime import UTC, datetime

from msgspec import Struct

from layerscope.model.errors import RunError, UsageError
from layerscope.recording.proofs import NO_DIFFERENCE, PROVEN, REFUTED, Proof, machine_of
from layerscope.recording.run import RunInfo
from layerscope.tune import final
from layerscope.tune import objective as objectives
from layerscope.tune.elimination import SMALLEST
from layerscope.tune.final import Final
from layerscope.tune.progress import Teller
from layerscope.tune.setting import DEFAULT, Setting
from layerscope.tune.track import Means, Progress, RaceState, Refused
from layerscope.tune.trial import TrialOptions, Trials

# How the change is called while it runs.
_NAME = "with the change"


class ProofWish(Struct, frozen=True):
    """What is compared: `program` as it is and with `change`, which `is_said` so. `any_output`:
    they may print different things.
    """

    rule: str
    program: tuple[str, ...]
    change: Setting
    is_said: str
    budget_s: float
    any_output: bool
    quiet: bool


def of_variables(texts: list[str]) -> Setting:
    """The change that sets each `NAME=VALUE` for the program."""
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--with-env {text}: give NAME=VALUE")
        variables[name] = value
    return Setting(_NAME, variables)


def of_command(text: str) -> Setting:
    """The change that starts another command."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--with {text}: {error}") from error
    if not words:
        raise UsageError("--with: give the command that starts the changed program")
    from layerscope.session.command import program_command

    command, _ = program_command(words)
    return Setting(_NAME, program=tuple(command))


def of_arguments(words: tuple[str, ...], program: tuple[str, ...]) -> Setting:
    """The change that adds words to the command."""
    return Setting(_NAME, program=(*program, *words))


def prove(wish: ProofWish, info: RunInfo) -> Proof:
    """Run both in pairs until the answer is clear or the budget is spent; `info`: of a recording of
    the program. RunError where one of them cannot be compared.
    """
    teller = Teller(wish.quiet)
    begin = time.monotonic()
    trials = Trials(TrialOptions(wish.program, wish.budget_s, any_output=wish.any_output))
    teller.now("running the program twice as it is")
    usual = trials.usual()
    objective = objectives.objective(None, usual.has_steps)
    left_s = wish.budget_s - (time.monotonic() - begin)

    def tell(progress: Progress) -> None:
        teller.now(teller.of(progress, objective))

    means = Means(trials, objective, left_s, time.monotonic, tell=tell, run_s=usual.wall_s)
    found = _compared(RaceState(means, 0, 1), wish)
    teller.done("")
    return Proof(
        rule=wish.rule,
        verdict=verdict(found),
        ratio=found.found.ratio,
        low=found.found.low,
        high=found.found.high,
        pairs=found.pairs,
        change=wish.is_said,
        command=list(wish.program),
        machine=machine_of(info),
        versions=info.versions,
        at_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def verdict(found: Final) -> str:
    """What the interval says: proven or refuted only beyond the smallest difference that is worth a
    change.
    """
    low, high = found.found.low, found.found.high
    if low is None or high is None:
        return NO_DIFFERENCE
    if high < 1 and found.found.ratio <= 1 - SMALLEST:
        return PROVEN
    if low > 1 and found.found.ratio >= 1 + SMALLEST:
        return REFUTED
    return NO_DIFFERENCE


def _compared(state: RaceState, wish: ProofWish) -> Final:
    state.enter([wish.change])
    try:
        found = final.run(state, wish.change, _is_decided)
    except Refused as error:
        raise RunError(f"the program cannot be compared: {error}") from error
    if found is None:
        _, why = state.gone.get(wish.change.name, ("", "it does not run"))
        name = DEFAULT.name
        raise RunError(f"with the change it cannot be compared with the {name}: {why}")
    return found


def _is_decided(found: Final) -> bool:
    return verdict(found) != NO_DIFFERENCE

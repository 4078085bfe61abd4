"""`layerscope tune` from beginning to end: the runs by default, the race, what was asked for beside
it, and why.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from layerscope import __version__
from layerscope.capture.link import own_command
from layerscope.host import machine
from layerscope.host.machine import Machine
from layerscope.model import cache
from layerscope.model.errors import LayerscopeError, RunError, UsageError
from layerscope.tune import objective as objectives
from layerscope.tune import supervised, why
from layerscope.tune.journal import Journal, Question, kept_options
from layerscope.tune.measurement import OTHER_OUTPUT, Measurement
from layerscope.tune.objective import Objective
from layerscope.tune.paired import Interval, interval
from layerscope.tune.progress import Teller
from layerscope.tune.race import REFUSED, Outcome, needed, race
from layerscope.tune.setting import DEFAULT, Setting, TuneContext
from layerscope.tune.space import SearchSpace, Varied, space
from layerscope.tune.track import Refused
from layerscope.tune.trial import (
    LIMIT_MORE_S,
    LIMIT_TIMES,
    TrialOptions,
    Trials,
    Usual,
    supervised_run,
)

# Variables that libraries read begin so.
_OF_LIBRARIES = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "GOTO_",
    "BLIS_",
    "NUMEXPR_",
    "ONEDNN_",
    "DNNL_",
    "TORCH",
    "TF_",
    "MXNET_",
    "MALLOC_",
    "GLIBC_TUNABLES",
    "LD_",
    "PYTHON",
    "CUDA_",
    "NVIDIA_",
)
_JOURNAL_SUFFIX = ".tune.jsonl"
# Pairs of runs for what changes results, which decide nothing.
_WHAT_IF_PAIRS = 5
# Recording with all layers makes a program slower, and reading the recording takes time.
_RECORDED_TIMES, _RECORDED_MORE_S = 4.0, 60.0


class Wish(Struct, frozen=True):
    """What was asked for on the command line; `words`: all of it."""

    program: tuple[str, ...]
    objective: str | None
    metric: re.Pattern[str] | None
    more_is_better: bool
    budget_s: float
    vary: tuple[str, ...]
    varied: tuple[Varied, ...]
    presets: bool
    what_if: tuple[Setting, ...]
    what_if_said: tuple[str, ...]
    steps: int
    any_output: bool
    journal: str | None
    resume: str | None
    seed: int
    explains: bool
    quiet: bool
    words: tuple[str, ...]


class Plan(Struct, frozen=True):
    """What would be tried, as far as that is known without a run."""

    wish: Wish
    space: SearchSpace
    machine: Machine


class WhatIf(Struct, frozen=True):
    """What one that changes results takes in parts of the defaults, None: it was disqualified.
    `says`: about it.
    """

    setting: Setting
    found: Interval | None
    says: str


class Tuned(Struct):
    """The answer. `journal`: where it can be resumed from, empty where there is nothing to
    resume.
    """

    wish: Wish
    objective: Objective
    usual: Usual
    outcome: Outcome
    notes: tuple[str, ...]
    what_if: list[WhatIf] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    is_interrupted: bool = False
    journal: str = ""


def plan(wish: Wish) -> Plan:
    """What would be tried. Nothing is run, so it is not known which libraries the program has."""
    here = machine.facts()
    place = _place(wish, here)
    settings = space(place, wish.varied)
    return Plan(wish, settings, here)


def tune(wish: Wish) -> Tuned:
    """All of it. Ctrl-C ends the run that goes on, and what is known so far is the answer."""
    teller = Teller(wish.quiet)
    here = machine.facts()
    if wish.resume and not Path(wish.resume).is_file():
        raise UsageError(f"--resume {wish.resume}: there is no such file")
    if wish.journal and Path(wish.journal).exists():
        raise UsageError(
            f"--journal {wish.journal} exists already: go on with it by --resume, or name another "
            "file"
        )
    minutes = f"{wish.budget_s / 60:.3g} min"
    teller.say(
        f"the program runs again and again for up to {minutes} in this folder: "
        "what a run writes, such as checkpoints, the next one finds"
    )
    trials = Trials(
        TrialOptions(wish.program, wish.budget_s, wish.steps, wish.metric, wish.any_output)
    )
    begin = time.monotonic()
    teller.now("running it twice as it is")
    usual = trials.usual()
    spent_s = time.monotonic() - begin
    times = _times(wish, spent_s / 2, wish.budget_s - spent_s)
    objective = _objective(wish, usual)
    place = _place(wish, here, usual)
    tried = space(place, wish.varied)
    teller.done(_timed(usual, objective, wish))
    if tried.stages:
        budget = f"the budget is {minutes} (--budget)"
        settings = len(tried.stages[0].settings)
        needs = needed(float(times["run_s"]), settings)
        teller.say(f"{needs}; {budget}")
    path, is_ours = _journal_path(wish)
    journal = Journal(path, _question(wish, here, tried, times))
    try:
        tuned = _raced(wish, trials, usual, objective, tried, journal, teller, times, here)
    except (LayerscopeError, KeyboardInterrupt):
        teller.say(f"what was measured lies in {path}: --resume {path} goes on with it")
        raise
    finally:
        journal.close()
    if tuned.is_interrupted:
        tuned.journal = str(path)
        return tuned
    _after(tuned, trials, teller)
    if is_ours:
        path.unlink(missing_ok=True)
    teller.done("")
    return tuned


def _raced(
    wish: Wish,
    trials: Trials,
    usual: Usual,
    objective: Objective,
    tried: SearchSpace,
    journal: Journal,
    teller: Teller,
    times: dict[str, str],
    here: Machine,
) -> Tuned:
    is_interrupted = False

    def runner(setting: Setting, round_: int) -> Measurement:
        nonlocal is_interrupted
        try:
            return trials(setting, round_)
        except KeyboardInterrupt:
            is_interrupted = True
            raise Refused("it was ended by Ctrl-C before there was an answer") from None

    stages = [stage.settings for stage in tried.stages]
    if stages:
        outcome = race(
            stages,
            runner,
            objective,
            float(times["race_s"]),
            seed=wish.seed,
            journal=journal,
            tell=lambda progress: teller.now(teller.of(progress, objective)),
            run_s=float(times["run_s"]),
            cpus=here.cpu.granted or 1.0,
        )
    else:
        nothing = (
            "there is nothing to try here: every setting would start the program as it is "
            "started anyway"
        )
        outcome = Outcome(REFUSED, None, (), None, (), (nothing,))
    teller.done("")
    return Tuned(
        wish, objective, usual, outcome, (*usual.notes, *tried.notes), is_interrupted=is_interrupted
    )


def _after(tuned: Tuned, trials: Trials, teller: Teller) -> None:
    """What was asked for beside the race. Ctrl-C leaves it out, and what fails here leaves the
    answer as it is.
    """
    try:
        if tuned.outcome.verdict != REFUSED:
            for setting in tuned.wish.what_if:
                teller.now(f"{setting.name} against the defaults")
                tuned.what_if.append(_try_what_if(setting, trials, tuned))
        winner = tuned.outcome.winner
        if winner is not None and tuned.wish.explains:
            teller.now("recording the best setting and the defaults, to see why")
            tuned.why = _why(tuned, winner)
    except KeyboardInterrupt:
        tuned.notes = (*tuned.notes, "What comes after the comparison was left out by Ctrl-C.")
    except LayerscopeError as error:
        tuned.notes = (*tuned.notes, f"What comes after the comparison was left out: {error}")


# -- before the race -------------------------------------------------------------------------------


def _place(wish: Wish, here: Machine, usual: Usual | None = None) -> TuneContext:
    return TuneContext(
        here,
        dict(os.environ),
        wish.program,
        usual.libraries if usual else (),
        usual.has_steps if usual else False,
        wish.presets,
    )


def _objective(wish: Wish, usual: Usual) -> Objective:
    metric = wish.metric
    if metric is None:
        return objectives.objective(wish.objective, usual.has_steps)
    return objectives.metric(metric.pattern, wish.more_is_better)


def _timed(usual: Usual, objective: Objective, wish: Wish) -> str:
    """How the program is timed, in a sentence."""
    took = f"a run takes {usual.wall_s:.3g} s"
    if wish.metric is not None:
        return f"{took}; compared is {objective.statement}"
    if usual.has_steps:
        count = usual.measurements[-1].steps
        steps = f"{count:,} steps behind warm-up (by rule {usual.rule})"
        return f"{took} and has {steps}; compared is {objective.statement}"
    return (
        f"{took}, without our recorder; compared is {objective.statement}. No steps are known: "
        f"{usual.unseen}"
    )


def _times(wish: Wish, run_s: float, race_s: float) -> dict[str, str]:
    """How long a run takes and what is left for the race, by which it decides what to try: a race
    that is resumed decides as it did.
    """
    if wish.resume:
        kept = kept_options(Path(wish.resume))
        with suppress(ValueError, KeyError):
            return {name: f"{float(kept[name]):.3f}" for name in ("run_s", "race_s")}
    return {"run_s": f"{run_s:.3f}", "race_s": f"{max(race_s, 0.0):.3f}"}


def _question(wish: Wish, here: Machine, tried: SearchSpace, times: dict[str, str]) -> Question:
    options = {
        "objective": wish.objective or "",
        "metric": wish.metric.pattern if wish.metric else "",
        "more_is_better": str(wish.more_is_better),
        "vary": " ".join(wish.vary),
        "presets": str(wish.presets),
        "steps": str(wish.steps),
        "any_output": str(wish.any_output),
        "budget_s": f"{wish.budget_s:g}",
        **times,
    }
    about = f"{here.name}, {here.cpu.model}, {here.cpu.granted:g} of {len(here.cpu.online)} CPUs"
    settings = [DEFAULT, *tried.settings]
    return Question(
        wish.program,
        os.getcwd(),
        options,
        wish.seed,
        about,
        __version__,
        tuple(one.name for one in settings),
        tuple(one.line(wish.program) for one in settings),
        dict(_files(wish.program)),
        {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_OF_LIBRARIES)
        },
    )


def _files(program: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What is started, and the script."""
    from layerscope.session.command import program_name

    for word in dict.fromkeys(
        (shutil.which(program[0]) or program[0], program_name(list(program)))
    ):
        with suppress(OSError):
            yield os.path.realpath(word), hashlib.sha256(Path(word).read_bytes()).hexdigest()[:16]


def _journal_path(wish: Wish) -> tuple[Path, bool]:
    """Where the journal is kept, and whether it goes when there is an answer."""
    named = wish.resume or wish.journal
    if named:
        return Path(named), False
    from layerscope.session.command import program_name

    program = program_name(list(wish.program))
    stem = Path(program).name.removesuffix(".py") or "program"
    folder = Path.cwd()
    if not os.access(folder, os.W_OK):
        folder = cache.temporary()
    path = folder / f"{stem}{_JOURNAL_SUFFIX}"
    number = 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}{_JOURNAL_SUFFIX}"
    return path, True


# -- after the race --------------------------------------------------------------------------------


def _try_what_if(setting: Setting, trials: Trials, tuned: Tuned) -> WhatIf:
    ratios: list[float] = []
    other = ""
    for pair in range(_WHAT_IF_PAIRS):
        both = [DEFAULT, setting] if pair % 2 else [setting, DEFAULT]
        made = {one.name: trials(one, -3 - pair) for one in both}
        changed, usual = made[setting.name], made[DEFAULT.name]
        if usual.fault:
            continue
        if changed.fault == OTHER_OUTPUT:
            other = (
                " It prints something else: "
                f"{changed.why.removesuffix(' (--any-output allows that)')}."
            )
            changed = replace(changed, fault="")
        if changed.fault:
            return WhatIf(setting, None, f"{changed.why}.")
        values = tuned.objective.value(changed), tuned.objective.value(usual)
        if values[0] is not None and values[1] is not None:
            ratios.append(values[0] / values[1])
    found = interval(ratios) if ratios else None
    return WhatIf(setting, found, f"It changes results: {setting.because}.{other}")


def _why(tuned: Tuned, winner: Setting) -> list[str]:
    """Sentences that compare recordings of both with all layers."""
    found = []
    for setting in (DEFAULT, winner):
        try:
            found.append(_recorded(tuned, setting))
        except LayerscopeError as error:
            return [f"Why is not known: {setting.name} could not be recorded: {error}"]
    return why.sentences(*found)


def _recorded(tuned: Tuned, setting: Setting) -> why.Figures:
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader

    folder = Path(tempfile.mkdtemp(prefix="layerscope-tune-"))
    recording = folder / "trial.layerscope"
    steps = tuned.wish.steps
    try:
        words = [
            "run",
            "-q",
            "-o",
            str(recording),
            *(["--steps", f":{steps}"] if steps else []),
            "--",
        ]
        command = [*own_command("layerscope"), *words, *setting.words(tuned.wish.program)]
        usual_s = tuned.usual.wall_s
        # A program that goes on after its steps is ended when it has had time for them.
        limit_s = (
            2 * usual_s + LIMIT_MORE_S
            if steps
            else _RECORDED_TIMES * LIMIT_TIMES * usual_s + _RECORDED_MORE_S
        )
        task = supervised.TrialTask(
            str(folder),
            command,
            {},
            [],
            False,
            limit_s,
            secrets.token_hex(8),
            grace_s=_RECORDED_MORE_S,
        )
        answer = supervised_run(task, os.environ)
        if answer.ended == supervised.BY_USER:
            raise KeyboardInterrupt
        if answer.problem or (answer.ended and not steps):
            raise RunError(answer.problem or f"it did not end within {limit_s:.0f} s")
        with Reader(open_run(recording)) as reader:
            return why.figures(reader)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

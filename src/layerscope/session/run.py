"""Records a program that is started by us: `layerscope run`."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import signal
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from layerscope.capture import launchers, unreached
from layerscope.capture.init import stand_aside
from layerscope.capture.launchers import Launch
from layerscope.capture.preloading import preload
from layerscope.capture.program import Program, become, lacks_room
from layerscope.capture.recorder import surviving
from layerscope.capture.shapes import prepare as prepare_shapes
from layerscope.model.errors import RunError
from layerscope.model.events import Problem
from layerscope.rawfile.json_files import OPTIONS
from layerscope.rawfile.windows import RequestedWindow
from layerscope.recording.run import (
    Run,
)
from layerscope.session.budget import DEFAULT_SHARE, Budget, BudgetOptions
from layerscope.session.budget_pauses import PausingBudget
from layerscope.session.command import program_command, program_name
from layerscope.session.converter import Converter
from layerscope.session.create import create, discard, shown
from layerscope.session.finish import finish, say_summary, speaks
from layerscope.session.requested_layers import Requested, options_of
from layerscope.session.requests import Requests
from layerscope.session.session import Ended, Session
from layerscope.session.spooling import divert
from layerscope.show.screen import notify


class RunOptions(Struct, frozen=True):
    """What one recording is asked for.

    `words`: the program and its arguments as they stand on the command line; `output`: the name of
    the recording, empty for one of the program's; `ranks`: which ranks of a launcher, empty for
    all; `spool`: a folder for raw files, empty for the recording's own; `step_mark`: what a step
    is, empty for the rules; `window`: None for everything; `size`: what keeps the recording small,
    as `size_options` says it; `budget`: what it may cost, None for as much as it does;
    `profiler_share`: which share of the program's CPU time a profiler of a framework may take,
    None for as much as it does; `granularity`: OPERATOR to have each operator executed alone, else
    empty.
    """

    words: list[str]
    layers: frozenset[str]
    rate_hz: int
    size: dict[str, Any]
    budget: BudgetOptions | None = None
    profiler_share: float | None = DEFAULT_SHARE
    window: RequestedWindow | None = None
    output: str = ""
    ranks: str = ""
    spool: str = ""
    step_mark: str = ""
    granularity: str = ""
    shapes: bool = False
    quiet: bool = False
    verbose: bool = False


def record(asked: RunOptions) -> int:
    """Record a program; its own exit status, or its signal again."""
    stand_aside()
    reserve_streams()
    command, python = program_command(asked.words)
    launch = launchers.find(os.environ)
    chosen = launchers.read_ranks(asked.ranks) if asked.ranks else ()
    if launch and chosen and launch.rank not in chosen:
        become(command)
    quiet = asked.quiet or not speaks(launch, chosen)
    problems: list[Problem] = []
    shapes = None
    if asked.shapes:
        shapes = prepare_shapes(command, problems, None if quiet else notify)
    asked = _with_pauses(asked, launch)
    recording = create(asked.output, command, quiet, launch, chosen, asked.window)
    recording.info.step_mark = asked.step_mark
    session = Session(recording.raw)
    session.shapes = shapes
    session.window = asked.window.for_agent(asked.step_mark) if asked.window else None
    session.problems += problems
    requested = Requested(asked.layers, session, asked.rate_hz, asked.granularity)
    if asked.window and asked.window.steered and session.sampler is not None:
        session.sampler.is_resting = True
    requests = Requests(recording, session)
    converter = Converter(recording, session)
    session.on_watch.append(converter.watch)
    budget = _budget(asked, session, converter)
    try:
        divert(recording, asked.spool)
        keep_options(recording, asked)
        # Of a launcher outside the numbers are those of its ranks, and they have been looked at.
        environment = session.open_door(() if launch else chosen)
        session.problems += unreached.spare(command, environment, os.environ)
        preload(command, environment)
        program = Program(command, environment)
        requested.attach(program, environment)
        session.link.start()
        if not quiet:
            what = _beginning(command, python, recording, launch)
            is_paused = asked.window is not None and asked.window.steered
            does = "nothing is recorded yet of" if is_paused else "recording"
            notify(f"layerscope: {does} {what}\n")
            if is_paused:
                notify("layerscope: to record from now on: layerscope start\n")
        if asked.verbose:
            path = shlex.quote(shown(recording.path))
            notify(f"layerscope: watch it: layerscope top {path}\n")
        ended = session.run(program)
    except RunError as error:
        converter.kill()
        session.close()
        discard(recording)
        if not lacks_room(error):
            raise
        notify(
            f"layerscope: {error} beside our processes. It runs alone and nothing is recorded; "
            "raise ulimit -u or -v\n"
        )
        program.instead_of_us()
    requested.finish()
    what_was_left = budget.finish() if budget is not None else None
    if what_was_left is not None:
        recording.info.window = what_was_left
    with surviving(session.problems):
        finish(recording, session, ended, converter, command)
    with surviving(session.problems):
        say_summary(recording, session, converter, launch, chosen, quiet)
    converter.close()
    with surviving(session.problems):
        requests.finish()
    if not quiet:
        for problem in session.problems:
            if problem.code == "internal_error":
                notify(f"layerscope: {problem.what}. The recording is kept\n")
    return leave(ended)


def _with_pauses(asked: RunOptions, launch: Launch | None) -> RunOptions:
    """A budget that somebody asks for has the recording pause, unless there is a window already.
    Not of one rank of a launcher outside: ranks that pause at different times cannot be compared.
    """
    budget = asked.budget
    if budget is None or not budget.is_asked or asked.window or launch:
        return asked
    return replace(asked, window=RequestedWindow(budget=budget.share))


def _budget(asked: RunOptions, session: Session, converter: Converter) -> Budget | None:
    if asked.budget is None:
        return None
    pauses = asked.window is not None and asked.window.budget is not None
    kind = PausingBudget if pauses else Budget
    return kind(asked.budget, session, converter)


def write_options(recording: Run, options: dict[str, Any]) -> None:
    """Beside the raw files; a full disk is said by the drainer."""
    with contextlib.suppress(OSError):
        (recording.raw / OPTIONS).write_text(json.dumps(options))


def keep_options(recording: Run, asked: RunOptions) -> None:
    """What the drainer and every conversion of this recording must know, now and later."""
    options = {**asked.size, **options_of(asked.layers), "step_mark": asked.step_mark}
    options["profiler_share"] = asked.profiler_share
    if asked.window:
        options["window"] = asdict(asked.window)
    write_options(recording, options)


def _beginning(command: list[str], python: str, recording: Run, launch: Launch | None) -> str:
    """What is recorded, with what, and where."""
    where = f" with {command[0]} ({python})" if python else ""
    if launch is None:
        return f"{program_name(command)}{where} into {shown(recording.path)}"
    outer = shown(recording.path.parent.parent)
    return (
        f"{program_name(command)}{where}, rank {launch.rank} of {launch.world_size}, into {outer}"
    )


def reserve_streams() -> None:
    """A standard stream that is closed stays closed for the program, but no file of ours may get
    its number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def leave(ended: Ended) -> int:
    """The program's exit status; a signal that ended it ends us too, without a core file of
    ours.
    """
    if ended.signal is None:
        return ended.code or 0
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ended.signal != signal.SIGKILL:
        signal.signal(ended.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal

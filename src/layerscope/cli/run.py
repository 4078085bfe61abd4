"""Record a program while it runs.

Everything after the program's name belongs to the program. A `.py` file runs under the Python of the
active environment. The program keeps its standard streams, its exit status and its signals; the summary
comes on stderr after its end, and lies in the recording as summary.txt.

    layerscope run train.py --epochs 3
    layerscope run -o first -m package.train --epochs 3
    layerscope run -- ./server --port 8000

Ranks that a launcher starts inside (`layerscope run -- torchrun train.py`) are processes of one recording. Where the
launcher starts layerscope itself (`srun layerscope run train.py`), every rank records into one folder, and the first
one prints the summary of all.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerscope import __version__
from layerscope.capture import launchers, unreached
from layerscope.capture.init import stand_aside
from layerscope.capture.launchers import Launch
from layerscope.capture.preloading import preload
from layerscope.capture.program import Program, become, lacks_room
from layerscope.capture.recorder import Recorder, surviving
from layerscope.capture.shapes import prepare as prepare_shapes
from layerscope.checks import kept_measurements
from layerscope.host import machine
from layerscope.model import cache
from layerscope.model.errors import LayerscopeError, RunError, UsageError
from layerscope.model.events import Problem
from layerscope.model.layers import COUNTERS, OPERATORS, STACKS
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.model.secrets import kept_environment, mask
from layerscope.rawfile.json_files import OPTIONS, SESSION
from layerscope.rawfile.sampler_file import FILE
from layerscope.rawfile.windows import Window
from layerscope.recording.run import (
    RANKS,
    SUFFIX,
    ExitState,
    LayerState,
    ProgramState,
    RecordingCost,
    Run,
    RunInfo,
    TableState,
    free_name,
)
from layerscope.session import layer_options, size_options, window_options
from layerscope.session.command import program_command, program_name
from layerscope.session.converter import converted as end_of_converter
from layerscope.session.converter import start_converter, why_not_converted
from layerscope.session.requests import Requests
from layerscope.session.session import Ended, Session
from layerscope.session.spooling import bring_home, divert, let_go
from layerscope.session.stock_windows import NOT_AS_ASKED
from layerscope.show.screen import printable


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _configure_options(parser)
    parser.add_argument("program", metavar="PROGRAM", help="a .py file, any command, or -m and a module of Python")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    rest.required = False  # else it is named where no program is


def prepared(words: list[str]) -> list[str]:
    """The words behind `run`, with a `--` in front of the program where that is `-m MODULE`."""
    at = words.index("-m") if "-m" in words else 0
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    _configure_options(options)
    try:
        _, others = options.parse_known_args(words[:at])
    except argparse.ArgumentError:
        return words
    is_program = words[at : at + 1] == ["-m"] and not others
    return [*words[:at], "--", *words[at:]] if is_program else words


def _configure_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="NAME", help="the recording (default: the program, then -2)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing, not even the summary")
    parser.add_argument("--ranks", metavar="LIST", help="record only these ranks, such as 0,3-5; the others run bare")
    parser.add_argument(
        "--shapes", action="store_true",
        help="record the shapes and dtypes of every operator's inputs; needs g++, the first time 10 s, and costs more",
    )  # fmt: skip
    parser.add_argument(
        "--spool", metavar="DIR",
        help="keep raw files here until the end (default: a temporary folder if the recording is on a network)",
    )  # fmt: skip
    parser.add_argument(
        "--step-mark", metavar="WHAT",
        help="what one step is: the name of a range, a module (Net.encoder) or an operator, or FILE:LINE of a range",
    )  # fmt: skip
    layer_options.configure(parser)
    window_options.configure(parser)
    size_options.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Record; the program's own exit status, or its signal again."""
    stand_aside()
    reserve_streams()
    command, python = program_command([arguments.program, *arguments.arguments])
    window = window_options.window_of(arguments)
    layers = layer_options.layers_of(arguments)
    rate_hz = layer_options.rate_of(arguments, layers)
    options = size_options.options_of(arguments) | layer_options.options_of(layers)
    launch = launchers.find(os.environ)
    chosen = launchers.read_ranks(arguments.ranks) if arguments.ranks else ()
    if launch and chosen and launch.rank not in chosen:
        become(command)
    quiet = arguments.quiet or not speaks(launch, chosen)
    problems: list[Problem] = []
    shapes = prepare_shapes(command, problems, None if quiet else say) if arguments.shapes else None
    recording = create(arguments.output, command, quiet, launch, chosen, window)
    session = Session(recording.raw)
    session.shapes = shapes
    session.window = window.told(arguments.step_mark or "") if window else None
    session.problems += problems
    requested = layer_options.Requested(layers, session, rate_hz)
    requests = Requests(recording, session)
    converter = None
    try:
        divert(recording, arguments.spool)
        keep_options(recording, arguments.step_mark, window, options)
        # Of a launcher outside the numbers are those of its ranks, and they have been looked at.
        environment = session.open_door(() if launch else chosen)
        session.problems += unreached.spare(command, environment, os.environ)
        preload(command, environment)
        program = Program(command, environment)
        requested.attach(program, environment)
        converter = start_converter(recording, session)
        session.link.start()
        if not quiet:
            say(f"layerscope: recording {_beginning(command, python, recording, launch)}\n")
        ended = session.run(program, import_readers)
    except RunError as error:
        if converter is not None:
            converter.kill()
            converter.communicate()
        session.close()
        discard(recording)
        if not lacks_room(error):
            raise
        say(f"layerscope: {error} beside our processes. It runs alone and nothing is recorded; raise ulimit -u or -v\n")
        program.instead_of_us()
    requested.finish()
    with surviving(session.problems):
        finish(recording, session, ended, converter, command)
    with surviving(session.problems):
        say_summary(recording, session, launch, chosen, quiet)
    with surviving(session.problems):
        requests.finish()
    if not quiet:
        for problem in session.problems:
            if problem.code == "internal_error":
                say(f"layerscope: {problem.what}. The recording is kept\n")
    return leave(ended)


def keep_options(recording: Run, step_mark: str | None, window: Window | None, size: dict[str, Any]) -> None:
    """What the drainer and every conversion of this recording must know, now and later."""
    options = {**size, "step_mark": step_mark or "", **({"window": asdict(window)} if window else {})}
    with contextlib.suppress(OSError):  # a full disk is said by the drainer
        (recording.raw / OPTIONS).write_text(json.dumps(options))


def _beginning(command: list[str], python: str, recording: Run, launch: Launch | None) -> str:
    """What is recorded, with what, and where."""
    where = f" with {command[0]} ({python})" if python else ""
    if launch is None:
        return f"{program_name(command)}{where} into {_shown(recording.path)}"
    outer = _shown(recording.path.parent.parent)
    return f"{program_name(command)}{where}, rank {launch.rank} of {launch.world_size}, into {outer}"


def speaks(launch: Launch | None, chosen: Sequence[int]) -> bool:
    """Whether it is for us to print: of several ranks the first does."""
    if launch is None:
        return True
    from layerscope.session.ranked import is_first

    return is_first(launch, chosen)


def say_summary(recording: Run, session: Recorder, launch: Launch | None, chosen: Sequence[int], quiet: bool) -> None:
    """The summary of the recording; of several ranks the first one's, about all of them."""
    unread = why_not_converted(session.problems)
    if launch is None:
        summarise(recording, quiet, unread)
    elif speaks(launch, chosen):
        from layerscope.session.ranked import read_together

        together = read_together(recording)
        if together is None and not quiet:
            say(f"layerscope: only rank {launch.rank} is summed up here: to read all ranks takes a while\n")
        summarise(together or recording, quiet, "" if together else unread)


def import_readers() -> None:
    """Import what the summary needs while the program runs: the prompt comes back sooner."""
    for name in ("layerscope.analyse.summary", "layerscope.show.summary", "layerscope.recording.reader"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def reserve_streams() -> None:
    """A standard stream that is closed stays closed for the program, but no file of ours may get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def say(text: str) -> None:
    """Print on stderr if anybody takes it: a full disk or a reader that left is no reason to fail."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # What stays in the buffer would make the interpreter exit with a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def create(
    output: str | None,
    command: list[str],
    quiet: bool,
    launch: Launch | None = None,
    chosen: Sequence[int] = (),
    window: Window | None = None,
) -> Run:
    """Make the recording, in the working directory or, where that cannot be written, in a temporary folder."""
    info = _first_info(command)
    info.window = window.says() if window else ""
    if output:
        path = Path(output if output.endswith(SUFFIX) else output + SUFFIX).absolute()
        return _create_named(path, info, launch, chosen)
    stem = Path(_text(program_name(command))).name.removesuffix(".py") or "program"
    try:
        here = Path.cwd()
        if not _is_utf8(here):
            raise RunError("its name is not UTF-8")
        return _create_in(here, stem, info, launch, chosen)
    except (RunError, OSError) as error:
        why = error.__cause__ or error
        reason = why.strerror if isinstance(why, OSError) else why
        try:
            recording = _create_in(cache.temporary(), stem, info, launch, chosen)
        except OSError as other:
            raise RunError(
                f"cannot make the recording in {_text(_cwd())}: {reason}; nor elsewhere: {other.strerror}. "
                "Choose a place with -o"
            ) from other
        if not quiet:
            say(f"layerscope: {_text(_cwd())} cannot be written ({reason}): recording into {_shown(recording.path)}\n")
        return recording


def _first_info(command: list[str]) -> RunInfo:
    """`run.json` as it is before the program starts."""
    return RunInfo(
        schema=SCHEMA_VERSION,
        layerscope=__version__,
        run_id=secrets.token_hex(8),
        state="running",
        command=[_text(word) for word in mask(command)],
        cwd=_text(_cwd()),
        environment=kept_environment(os.environ),
        host={**kept_measurements.as_host(machine.facts(ask=False)), "name": os.uname().nodename},
        started_utc=_now(),
        start_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        session_pid=os.getpid(),
    )


def _create_named(path: Path, info: RunInfo, launch: Launch | None, chosen: Sequence[int]) -> Run:
    """The recording at `path`, as -o names it."""
    if not _is_utf8(path):
        raise UsageError(f"the recording {_text(str(path))} must have a name in UTF-8. Choose another with -o")
    if launch is not None:
        from layerscope.session.ranked import create_named

        return create_named(path, launch, chosen, info)
    if path.exists():
        raise UsageError(f"{_text(str(path))} exists already. Remove it, or choose another name with -o")
    return _create(path, info)


def _create_in(folder: Path, stem: str, info: RunInfo, launch: Launch | None, chosen: Sequence[int]) -> Run:
    """A recording in `folder` under the first name that is free; in a batch job its number belongs to the name."""
    if launch is not None:
        from layerscope.session.ranked import create_here

        return create_here(folder, stem, launch, chosen, info)
    job = launchers.batch_job(os.environ)
    while True:
        try:
            return _create(free_name(folder, f"{stem}-{job}" if job else stem), info)
        except RunError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise


def _create(path: Path, info: RunInfo) -> Run:
    """The recording at `path`; one that could be made only in part is removed again."""
    try:
        return Run.create(path, info)
    except RunError as error:
        if not isinstance(error.__cause__, FileExistsError):
            shutil.rmtree(path, ignore_errors=True)
        raise


def _is_utf8(path: Path) -> bool:
    """What reads and writes Parquet takes no other names."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def discard(recording: Run) -> None:
    """The program never started: leave nothing behind."""
    let_go(recording)
    shutil.rmtree(recording.path, ignore_errors=True)
    if recording.path.parent.name == RANKS:
        with contextlib.suppress(OSError):  # other ranks are there
            recording.path.parent.rmdir()
            shutil.rmtree(recording.path.parent.parent, ignore_errors=True)


def finish(
    recording: Run, session: Recorder, ended: Ended, converter: subprocess.Popen[bytes] | None, command: list[str]
) -> None:
    """Complete the recording: the last conversion, and the final `run.json`."""
    session.explain(command)
    info = recording.info
    if any(problem.code == NOT_AS_ASKED for problem in session.problems):
        info.window = ""
    about = {
        "pid": session.pid,
        "end_ns": session.end_ns,
        "exit": ended.code if ended.signal is None else -ended.signal,
        "problems": [asdict(problem) for problem in session.problems],
    }
    with contextlib.suppress(OSError):
        (recording.raw / SESSION).write_text(json.dumps(about), encoding="utf-8")
    converted = end_of_converter(converter, session)
    stays = bring_home(recording)
    if stays:
        say(f"layerscope: {stays}\n")
    info.state = "finished"
    info.finished_utc = _now()
    info.exit = ExitState(ended.code, ended.signal)
    info.program = ProgramState(
        ended.wall_ns, ended.user_ns, ended.system_ns, ended.max_rss_bytes, ended.faults_minor, ended.faults_major,
        ended.switches_voluntary, ended.switches_forced, ended.storage_read_bytes, ended.storage_written_bytes,
    )  # fmt: skip
    info.versions = session.versions
    info.tables = [TableState(name, rows) for name, rows in converted["rows"].items()]
    if converted["thinned"] > 1:
        info.weight_policy = f"one span stands for up to {converted['thinned']}"
    info.layers = _layers(session, converted, recording)
    recording.tables_path = Path(converted["tables"] or recording.path)
    raw_bytes = folder_bytes(recording.raw)
    tables_bytes = folder_bytes(recording.tables_path) - (raw_bytes if recording.tables_path == recording.path else 0)
    info.cost = RecordingCost(
        time.process_time_ns(), session.link.cpu_ns, converted["cpu_ns"], raw_bytes, tables_bytes,
        session.sampler.cpu_ns if session.sampler else 0,
    )  # fmt: skip
    with contextlib.suppress(OSError):
        recording.save()


def _layers(session: Recorder, converted: dict[str, Any], recording: Run) -> list[LayerState]:
    problem = next((p.what for p in session.problems if p.layer == OPERATORS and p.lost), "")
    operator_ns, backward_ns = session.span_costs_ns
    others = converted["records"] - converted["backward"]
    cpu_ns = converted["agent_cpu_ns"] + round(others * operator_ns + converted["backward"] * backward_ns)
    operators = LayerState(
        OPERATORS, "recorded" if converted["records"] else "nothing", problem,
        converted["records"], converted["dropped"], cpu_ns, folder_bytes(recording.raw),
    )  # fmt: skip
    layers = [operators, LayerState(COUNTERS, "recorded", "", converted["rows"].get("counters", 0))]
    if session.sampler is None:
        return layers
    problem = next((p.what for p in session.problems if p.layer == STACKS and p.lost), "")
    samples, sampled = converted["rows"].get("samples", 0), converted["sampled"]
    state = "recorded" if samples else "nothing"
    size = sum(path.stat().st_size for path in recording.raw.glob(f"{FILE}*"))
    lost, cpu_ns = sampled["lost"], sampled["handler_ns"]
    return [*layers, LayerState(STACKS, state, problem, samples, lost, cpu_ns, size, session.sampler.hz)]


def summarise(recording: Run, quiet: bool, unread: str = "") -> None:
    """Print the summary on stderr and keep it in the recording. `unread`: why its tables cannot be read."""
    from layerscope.analyse.summary import summarise as find_summary
    from layerscope.recording.reader import Reader
    from layerscope.show.summary import text as render

    if not unread:
        try:
            with Reader(recording) as reader:
                text = render(find_summary(reader))
        except (LayerscopeError, OSError) as error:
            unread = str(error)
    if unread:
        text = f"layerscope: no summary: {unread}\n"
    with contextlib.suppress(OSError):
        (recording.path / "summary.txt").write_text(text, encoding="utf-8")
    if not quiet:
        say("\n" + text)


def leave(ended: Ended) -> int:
    """The program's exit status; a signal that ended it ends us too, without a core file of ours."""
    if ended.signal is None:
        return ended.code or 0
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ended.signal != signal.SIGKILL:
        signal.signal(ended.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`; one that goes away meanwhile has none."""
    total = 0
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
    return total


def _shown(path: Path) -> str:
    here = _cwd()
    is_below = here not in ("", "/") and path.is_relative_to(here)
    return printable(str(path.relative_to(here) if is_below else path))


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _text(word: str) -> str:
    """`word` as a file can hold it: bytes that are no UTF-8 become visible."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

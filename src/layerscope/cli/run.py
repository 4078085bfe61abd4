"""Record a program while it runs.

Everything after the program's name belongs to the program. A `.py` file runs under the Python of the
active environment. The program keeps its standard streams, its exit status and its signals; the summary
comes on stderr after its end, and lies in the recording as summary.txt.

    layerscope run train.py --epochs 3
    layerscope run -o first -- python -m package.train
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerscope import __version__
from layerscope.collect.session import Ended, Session, open_log
from layerscope.errors import LayerscopeError, RunError, UsageError
from layerscope.host import cpu, frameworks
from layerscope.model.events import Problem
from layerscope.model.layers import COUNTERS, OPERATORS
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.model.secrets import kept_environment, mask
from layerscope.store.run import (
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("-o", "--output", metavar="NAME", help="the recording (default: NAME of the program, then NAME-2)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing, not even the summary")
    parser.add_argument("program", metavar="PROGRAM", help="a .py file or any command")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Record; the program's own exit status, or its signal again."""
    command, python = program_command([arguments.program, *arguments.arguments])
    recording = create(arguments.output, command, arguments.quiet)
    session = Session(recording.raw)
    environment = session.open_door()
    converter = start_converter(recording)
    session.start_drainer()
    if not arguments.quiet:
        where = f" with {command[0]} ({python})" if python else ""
        print(f"layerscope: recording {program_name(command)}{where} into {_shown(recording.path)}", file=sys.stderr, flush=True)
    try:
        ended = session.run(command, environment)
    except RunError:
        converter.kill()
        discard(recording, session)
        raise
    finish(recording, session, ended, converter, command)
    summarise(recording, arguments.quiet)
    return leave(ended)


def program_command(words: list[str]) -> tuple[list[str], str]:
    """What to execute for `words`, and for a bare .py file which Python was chosen."""
    if words[0] == "--":
        words = words[1:]
    if not words:
        raise UsageError("no program is named. For example: layerscope run train.py")
    if words[0].endswith(".py"):
        if not Path(words[0]).exists():
            raise RunError(f"there is no file {words[0]}", 127)
        python, where = frameworks.program_python(os.environ)
        return [python, *words], where
    return words, ""


def program_name(command: list[str]) -> str:
    """What a person calls the program: the script a Python runs, or the command itself."""
    if Path(command[0]).name.startswith("python"):
        for i, word in enumerate(command[1:], 1):
            if word == "-m" and i + 1 < len(command):
                return command[i + 1]
            if not word.startswith("-"):
                return word
    return command[0]


def create(output: str | None, command: list[str], quiet: bool) -> Run:
    """Make the recording, in the working directory or, where that cannot be written, in a temporary folder."""
    info = RunInfo(
        schema=SCHEMA_VERSION,
        layerscope=__version__,
        run_id=secrets.token_hex(8),
        state="running",
        command=mask(command),
        cwd=os.getcwd(),
        environment=kept_environment(os.environ),
        host={"name": socket.gethostname(), **cpu.facts()},
        started_utc=_now(),
        start_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        session_pid=os.getpid(),
    )
    if output:
        path = Path(output if output.endswith(SUFFIX) else output + SUFFIX).absolute()
        if path.exists():
            raise UsageError(f"{output} exists already. Remove it, or choose another name with -o")
        return Run.create(path, info)
    stem = Path(program_name(command)).name.removesuffix(".py") or "program"
    here = Path.cwd()
    try:
        return Run.create(free_name(here, stem), info)
    except (RunError, OSError) as error:
        elsewhere = Path(tempfile.gettempdir()) / f"layerscope-{os.getuid()}"
        elsewhere.mkdir(mode=0o700, exist_ok=True)
        recording = Run.create(free_name(elsewhere, stem), info)
        if not quiet:
            print(f"layerscope: {here} cannot be written ({error}); recording into {recording.path}", file=sys.stderr)
        return recording


def start_converter(recording: Run) -> subprocess.Popen[bytes]:
    """Start the process that turns raw files into tables beside the program."""
    command = [sys.executable, "-m", "layerscope", "_convert", str(recording.raw), str(recording.path)]
    command.append(recording.info.run_id)
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open_log(recording.raw, "converter"), process_group=0
    )


def discard(recording: Run, session: Session) -> None:
    """The program never started: leave nothing behind."""
    import shutil

    session.abandon()
    shutil.rmtree(recording.path, ignore_errors=True)


def finish(recording: Run, session: Session, ended: Ended, converter: subprocess.Popen[bytes], command: list[str]) -> None:
    """Complete the recording: the last conversion, and the final `run.json`."""
    session.explain(command)
    info = recording.info
    about = {
        "pid": session.pid,
        "end_ns": info.start_ns + ended.wall_ns,
        "exit": ended.code if ended.signal is None else -ended.signal,
        "problems": [asdict(problem) for problem in session.problems],
    }
    with contextlib.suppress(OSError):
        (recording.raw / "session.json").write_text(json.dumps(about))
    converted = _converted(converter, session)
    info.state = "finished"
    info.finished_utc = _now()
    info.exit = ExitState(ended.code, ended.signal)
    info.program = ProgramState(
        ended.wall_ns, ended.user_ns, ended.system_ns, ended.max_rss_bytes, ended.faults_minor, ended.faults_major
    )
    info.versions = session.versions
    info.tables = [TableState(name, rows) for name, rows in converted["rows"].items()]
    info.layers = _layers(session, converted, recording)
    recording.tables_path = Path(converted["tables"])
    info.cost = RecordingCost(
        time.process_time_ns(), session.drainer_cpu_ns, converted["cpu_ns"],
        folder_bytes(recording.raw), folder_bytes(recording.tables_path) - (folder_bytes(recording.raw) if recording.tables_path == recording.path else 0),
    )  # fmt: skip
    with contextlib.suppress(OSError):
        recording.save()


def _converted(converter: subprocess.Popen[bytes], session: Session) -> dict[str, Any]:
    out, _ = converter.communicate()
    try:
        converted: dict[str, Any] = json.loads(out)
    except ValueError:
        session.problems.append(
            Problem(OPERATORS, "not_converted", f"the converter ended with status {converter.returncode}",
                    "the raw files are kept: any `layerscope table` converts them again", "")
        )  # fmt: skip
        return {"rows": {}, "cpu_ns": 0, "records": 0, "dropped": 0, "agent_cpu_ns": 0, "operator_cost_ns": 0, "tables": ""}
    return converted


def _layers(session: Session, converted: dict[str, Any], recording: Run) -> list[LayerState]:
    problem = next((p.what for p in session.problems if p.layer == OPERATORS and p.lost), "")
    cpu_ns = converted["agent_cpu_ns"] + round(converted["records"] * converted["operator_cost_ns"])
    operators = LayerState(
        OPERATORS, "recorded" if converted["records"] else "nothing", problem,
        converted["records"], converted["dropped"], cpu_ns, folder_bytes(recording.raw),
    )  # fmt: skip
    return [operators, LayerState(COUNTERS, "recorded", "", converted["rows"].get("counters", 0))]


def summarise(recording: Run, quiet: bool) -> None:
    """Print the summary on stderr and keep it in the recording."""
    from layerscope.analyse.summary import summarise as find_summary
    from layerscope.show.summary import text as render
    from layerscope.store.reader import Reader

    try:
        with Reader(recording) as reader:
            text = render(find_summary(reader))
    except (LayerscopeError, OSError) as error:
        text = f"layerscope: no summary: {error}\n"
    with contextlib.suppress(OSError):
        (recording.path / "summary.txt").write_text(text)
    if not quiet:
        with contextlib.suppress(OSError):
            sys.stderr.write("\n" + text)
            sys.stderr.flush()


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
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

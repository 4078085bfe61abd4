"""Check the machine: what slows programs down here, how it was found, and how to change it.

No program is run and no setting is changed: /proc, /sys and the files of control groups are read.
--pid inspects a running process from outside for 5 seconds: its threads, the CPUs that it may use,
its libraries and its variables. --measure runs matrix products and memory copies in the Python of
the active environment, for up to 20 s.

Each line is an error, a warning, a note, ok, or unseen if the machine does not report it. The exit
status is 0; with --fail-on 1 if a check has that level or a worse one; 125 if layerscope itself
fails. docs/platform.md explains the checks.

    layerscope platform
    layerscope platform --pid 4711
    layerscope platform --json > a.json
    layerscope platform --compare a.json    # on another machine
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.model.errors import ReadError, UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.checks.check import Check, Seen
    from layerscope.checks.compare import Difference, Side

FAILED = 1
_WATCH_S, _LONGEST_S = 5.0, 86_400.0
_COMMAND_WIDTH = 60


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `platform`."""
    parser.add_argument(
        "--pid", type=int, metavar="PID", help="look at this process; nothing is attached to it"
    )
    parser.add_argument(
        "--watch",
        type=float,
        metavar="SECONDS",
        help="look how often threads are held back, and who else works, for so long (with --pid "
        f"{_WATCH_S:g}, else 0)",
    )
    parser.add_argument(
        "--measure", action="store_true", help="measure what libraries and memory reach, up to 20 s"
    )
    parser.add_argument(
        "--compare",
        metavar="OTHER",
        help="what differs from another machine: its --json, or a recording made there",
    )
    parser.add_argument(
        "--fail-on",
        choices=("warning", "error"),
        help="exit with 1 if any check is so bad, or worse",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing: only the exit status"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the checks, or what differs; 1 if --fail-on says so."""
    from layerscope.checks import judge

    there = _other(arguments.compare) if arguments.compare else None
    seen = _look(arguments)
    found = judge.judged(seen)
    if there is not None:
        from layerscope.checks.compare import Side, differences

        _print_differences(
            differences(Side(seen.machine, tuple(found), seen.measured), there),
            seen,
            there,
            arguments,
        )
    elif arguments.json:
        _print_json(found, seen)
    elif not arguments.quiet:
        _print(found, seen)
    return FAILED if arguments.fail_on and judge.fails(found, arguments.fail_on) else 0


def _look(arguments: argparse.Namespace) -> Seen:
    """Everything that was asked for."""
    from layerscope.checks.check import Seen
    from layerscope.host import machine, process, watch

    seconds = (
        arguments.watch
        if arguments.watch is not None
        else _WATCH_S
        if arguments.pid is not None
        else 0.0
    )
    if not (0 <= seconds <= _LONGEST_S):  # nan too
        raise UsageError(
            f"--watch takes seconds from 0 to {_LONGEST_S:,.0f}, not {arguments.watch:g}"
        )
    here = machine.facts(pid=arguments.pid)
    if seconds and sys.stderr.isatty() and not arguments.quiet:
        whom = "the machine" if arguments.pid is None else f"process {arguments.pid}"
        screen.tell(f"layerscope: watching {whom} for {seconds:g} s")
    watched = watch.watch(seconds, pid=arguments.pid) if seconds else None
    measured = None
    if arguments.measure:
        from layerscope.checks import measurements
        from layerscope.host import frameworks

        measured = measurements.measure(frameworks.program_python(os.environ)[0], machine=here)
    variables = here.process.variables if here.process is not None else process.variables(_shell())
    return Seen(here, watched, measured, variables)


def _other(name: str) -> Side:
    """The machine that `name` tells of: a file of --json, or the host of a recording."""
    from layerscope.checks import document
    from layerscope.model.stored_json import decoded

    path = Path(name)
    if path.is_file() and path.name != "run.json" and not path.name.endswith(".zip"):
        try:
            data = decoded(path.read_bytes(), object)
        except ValueError as error:
            what = (
                f"{name} is not JSON ({error}). Make it there: layerscope platform --json > "
                "there.json"
            )
            raise ReadError(what) from error
        return document.side(data if isinstance(data, dict) else {}, name)
    from layerscope.ingest.open import folder_of, open_folder, session_lives
    from layerscope.ingest.ranks import joined_info
    from layerscope.recording.run import find_run

    run = open_folder(folder_of(find_run(name)))
    info = joined_info(run, session_lives) if run.is_joined else run.info
    return document.side({"machine": info.host}, name)


def _shell() -> str:
    """The environment of the shell, as the kernel keeps that of a process."""
    return b"\0".join(b"%b=%b" % pair for pair in os.environb.items()).decode("utf-8", "replace")


def _print(found: list[Check], seen: Seen) -> None:
    from layerscope.checks import judge
    from layerscope.show import checklist

    screen.line(_headline(seen))
    rows = [
        (check.subject, check.state, _said(check), check.remedy)
        for check in judge.worst_first(found)
    ]
    checklist.write(rows, sys.stdout)
    screen.line(judge.count_sentence(found))
    sys.stdout.flush()
    screen.tell(f"Next: {_next_command(seen)}")


def _said(check: Check) -> str:
    if not check.consequence:
        return check.evidence
    return f"{check.evidence}. {check.consequence}"


def _headline(seen: Seen) -> str:
    """Which machine this is about, and which process."""
    from layerscope.show.screen import printable
    from layerscope.show.terminal import shortened

    machine = seen.machine
    parts = [
        machine.name,
        machine.cpu.model or machine.isa.architecture,
        f"Linux {machine.kernel.release}",
    ]
    if machine.process is not None:
        inside = (
            f" ({machine.process.namespace_pid} in its container)"
            if machine.process.namespace_pid
            else ""
        )
        words = shortened(" ".join(machine.process.argv) or machine.process.name, _COMMAND_WIDTH)
        parts.append(f"process {machine.process.pid}{inside}: {words}")
    return printable(", ".join(filter(None, parts)))


def _next_command(seen: Seen) -> str:
    if seen.machine.process is None and seen.measured is None:
        return "layerscope platform --measure, or --pid PID for a program that runs"
    return "layerscope tune -- python train.py"


def _print_json(found: list[Check], seen: Seen) -> None:
    from layerscope.checks import document, judge

    more = {"totals": judge.totals(found), **document.facts(seen)}
    _write_json("checks", document.COLUMNS, [document.row(check) for check in found], more)


def _write_json(
    table: str, names: Sequence[str], rows: Sequence[Sequence[str]], more: dict[str, Any]
) -> None:
    """The rows, and what they share: `more`."""
    from layerscope.analyse.result import ResultColumn
    from layerscope.show import json_output

    sys.stdout.flush()
    columns = [ResultColumn(name, "string", "", "") for name in names]
    json_output.write_rows(columns, rows, sys.stdout.buffer, "platform", table, more)


def _print_differences(
    found: list[Difference], seen: Seen, there: Side, arguments: argparse.Namespace
) -> None:
    from layerscope.checks import document

    rows = [
        (difference.subject, difference.here, difference.there, difference.why)
        for difference in found
    ]
    names = ("subject", "here", "there", "why")
    if arguments.json:
        _write_json("differences", names, rows, document.facts(seen))
    elif not arguments.quiet:
        from layerscope.show import sides

        sides.write(
            rows, (seen.machine.name or "here", there.machine.name or arguments.compare), sys.stdout
        )

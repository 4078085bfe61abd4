"""Check what can be recorded on this machine, and say how to enable the rest.

PROGRAM is a command line as for `layerscope run`, or a Python; default: the Python of the active
environment. The program is not run: doctor finds the PyTorch of its Python and tests the agent with
it, which also measures the overhead per operator. Only the cache of test results is written.

The exit status is 0 if operators can be recorded, 1 if they cannot, and 125 if doctor itself fails.
docs/doctor.md explains the lines.

    layerscope doctor
    layerscope doctor -- torchrun train.py
"""

from __future__ import annotations

import argparse
import sys

from layerscope.show import screen


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing: only the exit status"
    )
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="[PROGRAM ...]",
        help="a program with its arguments",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the checks; 1 when operators cannot be recorded."""
    from layerscope.checks import recording, recording_check

    words = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    rows: list[tuple[str, ...]] = []
    states: dict[str, str] = {}
    for check in recording.all_checks(words):
        rows.append(recording.as_row(check))
        states.setdefault(check.subject, check.state)
    if arguments.json:
        from layerscope.analyse.result import ResultColumn, of_rows
        from layerscope.show import json_output

        columns = tuple(
            ResultColumn(name, "string", "", "") for name in ("subject", "state", "what", "remedy")
        )
        sys.stdout.flush()
        json_output.write(of_rows("checks", columns, rows), sys.stdout.buffer, "doctor", "")
    elif not arguments.quiet:
        from layerscope.show import checklist

        checklist.write(rows, sys.stdout)
        screen.tell("Next: layerscope run train.py")
    reaches = (
        states[recording.OPERATORS] != recording_check.NO
        and states.get("arguments") != recording_check.NO
    )
    return 0 if reaches else 1

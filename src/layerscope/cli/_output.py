"""The options that every command with a table has, and how it prints the table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.analyse.result import Result
    from layerscope.model.events import Problem


def add_choice(parser: argparse.ArgumentParser, top: str) -> None:
    """Add the options that choose rows; `top` says how many are printed without --top."""
    parser.add_argument("--where", metavar="EXPRESSION", help="only the rows for which it is true")
    parser.add_argument("--sort", metavar="COLUMN", help="order of the rows")
    parser.add_argument(
        "--top", metavar="N", type=int, help=f"only the first N rows, 0: all ({top})"
    )


def add_format(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add the options that choose the output; a command may add another to the group it gets."""
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--csv", action="store_true", help="print comma-separated values")
    output.add_argument("--json", action="store_true", help="print one JSON object")
    return output


def is_for_machines(arguments: argparse.Namespace) -> bool:
    """Whether a program reads the table: it can cut it itself, and nothing is left out that was not
    asked for.
    """
    return bool(arguments.csv or arguments.json)


def say_problems(
    problems: Collection[Problem],
    arguments: argparse.Namespace,
    notes: Iterable[str] = (),
    is_empty: bool = False,
) -> None:
    """Print on stderr what must be said beside rows that have no place for it, unless --quiet."""
    from layerscope.show import terminal

    if not arguments.quiet:
        for sentence in (*terminal.problem_lines(problems, is_empty), *notes):
            screen.tell(f"layerscope: {sentence}")


def write(result: Result, arguments: argparse.Namespace, command: str, run: str) -> None:
    """Print `result`, that `command` made of the recording `run`, as `arguments` say."""
    from layerscope.show import csv_output, json_output, terminal

    if arguments.json:
        sys.stdout.flush()
        json_output.write(result, sys.stdout.buffer, command, run)
    elif arguments.csv:
        csv_output.write(result, sys.stdout)
        say_problems(result.problems, arguments, result.sentences, not result.rows)
    else:
        terminal.write(result, sys.stdout)

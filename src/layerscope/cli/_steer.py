"""What `start`, `stop` and `mark` have in common: which recording is meant, and how it is asked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from layerscope.model.errors import RunError
from layerscope.show import screen

Answers = list[tuple[Path, dict[str, Any]]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "recording",
        metavar="RUN|PID",
        nargs="?",
        help="a recording that is being made, or a process in it (default: the only one here)",
    )
    configure_output(parser)


def configure_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is printed."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def open_standby(word: str | None) -> None:
    """Where `word` is the pid of a program with a door that nobody has opened yet: open it, for a
    recording in this folder.
    """
    from layerscope.session import standby
    from layerscope.session.living import living_of

    pid = int(word) if word is not None and word.isascii() and word.isdigit() else 0
    if pid and standby.is_prepared(pid) and living_of(pid) is None:
        standby.open_door(pid, Path.cwd())


def ask(word: str | None, request: dict[str, Any]) -> Answers:
    """The answers of the recordings that `word` means, each with the folder that is named.

    RunError where one of them does not do it.
    """
    from layerscope.session import living
    from layerscope.session.create import shown
    from layerscope.session.named_living import named, whole_path

    answers: Answers = []
    for one in named(word):
        path = whole_path(one)
        try:
            answer = living.ask(one, request)
        except (OSError, ValueError) as error:
            raise RunError(f"the session of {shown(path)} does not answer: {error}") from error
        if "error" in answer:
            raise RunError(f"the recording {shown(path)} {answer['error']}")
        answers.append((path, answer))
    return answers


def say(arguments: argparse.Namespace, command: str, answers: Answers, sentence: str) -> None:
    """Print the answers, or a sentence about all of them."""
    if arguments.json:
        _write(command, answers)
    elif not arguments.quiet:
        screen.line(sentence)


def _write(command: str, answers: Answers) -> None:
    from layerscope.analyse.result import NS, ResultColumn, of_rows
    from layerscope.show import json_output

    columns = (
        ResultColumn("recording", "string", "", "its folder"),
        ResultColumn("at_ns", "int64", NS, "when, from the start of the program"),
        ResultColumn("open", "bool", "", "whether the window is open; null of a mark"),
        ResultColumn("was_open", "bool", "", "whether it was before"),
        ResultColumn("closes_ns", "int64", NS, "when it closes by itself; null: it does not"),
        ResultColumn("name", "string", "", "of a mark"),
    )
    rows = [
        (
            answer["path"],
            round(answer["run_s"] * 1e9),
            answer.get("open"),
            answer.get("was_open"),
            answer.get("closes_ns"),
            answer.get("name"),
        )
        for _, answer in answers
    ]
    result = of_rows(command, columns, rows)
    path, _ = answers[0]
    json_output.write(result, sys.stdout.buffer, command, str(path))

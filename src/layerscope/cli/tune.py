"""Try settings of the machine on an unchanged program, and say which is better and how surely.

PROGRAM runs many times in the working folder, unchanged: with other numbers of threads, wait
policies, bindings and allocators, given by environment variables or in front of its command. It
must end by itself and print the same each time but for what it measures; --steps N ends each run
after N steps. Every run is compared with runs by default next to it; the best setting runs against
the defaults once more at the end. "No measurable difference" is an answer.

The objective is throughput (the mean time of a step) where the program makes steps, else wall (the
time of a run). The exit status is 0 when there is an answer, 1 when the machine or the program
allowed none, 130 after Ctrl-C.

    layerscope tune train.py --epochs 1
    layerscope tune --objective p99 --budget 20 --steps 200 -- python serve.py
    layerscope tune --vary '--workers={0,2,4}' -- train.py
    layerscope tune --metric 'images/s: ([0-9.]+)' --more-is-better -- ./benchmark
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.model.errors import UsageError

if TYPE_CHECKING:
    from layerscope.tune.session import Wish

_BUDGET_MIN = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `tune`."""
    parser.add_argument(
        "--objective",
        metavar="WHAT",
        help="throughput, p50 or p99 of the steps, wall, cpu (CPU time) or rss (memory)",
    )
    parser.add_argument(
        "--metric", metavar="REGEX", help="what counts is the number that this finds in the output"
    )
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument(
        "--more-is-better", action="store_true", help="of --metric: the larger the better"
    )
    direction.add_argument(
        "--less-is-better", action="store_true", help="of --metric: the smaller the better"
    )
    parser.add_argument(
        "--budget", metavar="MIN", help=f"minutes that it may take (default {_BUDGET_MIN:g})"
    )
    parser.add_argument(
        "--vary",
        metavar="'OPTION={A,B}'",
        action="append",
        default=[],
        help="also try these values of an option of the program; may be given again",
    )
    parser.add_argument(
        "--presets",
        action="store_true",
        help="only one thread, half a socket, one socket, all cores",
    )
    parser.add_argument(
        "--what-if",
        metavar="LIST",
        default="",
        help="also measure what changes results, such as bf16",
    )
    parser.add_argument(
        "--steps", metavar="N", help="end each run after N steps that are not warm-up"
    )
    parser.add_argument("--any-output", action="store_true", help="a run may print anything")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be tried, and run nothing"
    )
    parser.add_argument(
        "--journal", metavar="FILE", help="keep the measurements in FILE (default: one that goes)"
    )
    parser.add_argument("--resume", metavar="FILE", help="go on with what this journal holds")
    parser.add_argument("--seed", metavar="N", default="0", help="of the order of the runs")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="also write a page with a plot of all runs"
    )
    parser.add_argument(
        "--no-why", action="store_true", help="do not record the best setting and the defaults"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but the result")
    parser.add_argument("program", metavar="PROGRAM", help="a .py file or any command")
    rest = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments"
    )
    rest.required = False


def prepared(words: list[str]) -> list[str]:
    """The command line as argparse takes it: what follows --vary looks like an option. What is the
    program's stays.
    """
    parser = argparse.ArgumentParser(add_help=False)
    configure(parser)
    with_value: set[str] = set()
    for action in parser._actions:
        if action.nargs is None:
            with_value.update(action.option_strings)
    made: list[str] = []
    for place, word in enumerate(words):
        last = made[-1] if made else ""
        is_value = last in with_value
        is_option = word.startswith("-") and word != "--"
        if not is_value and not is_option:
            return [*made, *words[place:]]
        if is_value and last == "--vary":
            made[-1] = f"--vary={word}"
        else:
            made.append(word)
    return made


def run(arguments: argparse.Namespace) -> int:
    """Tune; 0 when there is an answer."""
    from layerscope.session.command import program_command
    from layerscope.tune import answer, session

    command, _ = program_command([arguments.program, *arguments.arguments])
    wish = _wish(arguments, tuple(command))
    if arguments.dry_run:
        answer.write_plan(session.plan(wish), arguments)
        return 0
    tuned = session.tune(wish)
    sys.stdout.flush()
    return answer.write(tuned, arguments)


def _wish(arguments: argparse.Namespace, program: tuple[str, ...]) -> Wish:
    """What the arguments ask for. UsageError when it makes no sense."""
    from layerscope.tune import objective, space, what_if
    from layerscope.tune.session import Wish

    objective.objective(arguments.objective, has_steps=True)
    if arguments.metric is None and (arguments.more_is_better or arguments.less_is_better):
        raise UsageError(
            "--more-is-better and --less-is-better are about a --metric, and none is given"
        )
    if arguments.metric is not None and not (arguments.more_is_better or arguments.less_is_better):
        raise UsageError(f"--metric {arguments.metric!r}: add --more-is-better or --less-is-better")
    if arguments.metric is not None and arguments.objective is not None:
        raise UsageError("--metric is what counts, so there can be no --objective beside it")
    if arguments.steps is not None and arguments.objective == "wall":
        raise UsageError(
            "--steps ends the runs, so the duration of a run (--objective wall) means nothing"
        )
    if arguments.steps is not None and arguments.metric is not None:
        raise UsageError(
            "--steps ends the runs early, and --metric is read from what a whole run prints: take "
            "one"
        )
    if arguments.journal and arguments.resume:
        raise UsageError(
            "--resume goes on with its journal, so there can be no --journal beside it"
        )
    if arguments.html is not None and not arguments.html.absolute().parent.is_dir():
        raise UsageError(f"{arguments.html} lies in a folder that does not exist")
    tried, said = what_if.settings(arguments.what_if)
    return Wish(
        program=program,
        objective=arguments.objective,
        metric=_pattern(arguments.metric),
        more_is_better=arguments.more_is_better,
        budget_s=60 * _number("--budget", arguments.budget, _BUDGET_MIN),
        vary=tuple(arguments.vary),
        varied=space.parse_all(arguments.vary),
        presets=arguments.presets,
        what_if=tuple(tried),
        what_if_said=tuple(said),
        steps=round(_number("--steps", arguments.steps, 0.0, whole=True)),
        any_output=arguments.any_output,
        journal=arguments.journal,
        resume=arguments.resume,
        seed=round(_number("--seed", arguments.seed, 0.0, least=0.0, whole=True)),
        explains=not arguments.no_why,
        quiet=arguments.quiet,
        words=tuple(sys.argv[1:]),
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"--metric {text!r} is no regular expression: {error}") from error


def _number(
    option: str, text: str | None, default: float, least: float | None = None, whole: bool = False
) -> float:
    """A number above 0, or from `least` on."""
    if text is None:
        return default
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = math.nan
    is_large_enough = value > 0 if least is None else value >= least
    if not math.isfinite(value) or not is_large_enough:
        kind = "whole number" if whole else "number"
        raise UsageError(
            f"{option} {text}: give a {kind} {'above 0' if least is None else f'from {least:g} on'}"
        )
    return value

"""Record a program while it runs.

Everything after the program's name belongs to the program. A `.py` file runs under the Python of
the active environment. The program keeps its standard streams, its exit status and its signals; the
summary comes on stderr after its end, and lies in the recording as summary.txt.

    layerscope run train.py --epochs 3
    layerscope run -o first -m package.train --epochs 3
    layerscope run -- ./server --port 8000

Ranks that a launcher starts inside (`layerscope run -- torchrun train.py`) are processes of one
recording. Where the launcher starts layerscope itself (`srun layerscope run train.py`), every rank
records into one folder, and the first one prints the summary of all.
"""

from __future__ import annotations

import argparse

from layerscope.capture.granularity import OPERATOR
from layerscope.cli import _layers, _size, _window
from layerscope.session.run import RunOptions, record


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _configure_options(parser)
    parser.add_argument(
        "program", metavar="PROGRAM", help="a .py file, any command, or -m and a module of Python"
    )
    rest = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments"
    )
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
    parser.add_argument(
        "-o", "--output", metavar="NAME", help="the recording (default: the program, then -2)"
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing, not even the summary"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say how to watch the program while it runs"
    )
    parser.add_argument(
        "--ranks",
        metavar="LIST",
        help="record only these ranks, such as 0,3-5; the others run bare",
    )
    parser.add_argument(
        "--shapes",
        action="store_true",
        help="record the shapes and dtypes of every operator's inputs; needs g++, the first time "
        "10 s, and costs more",
    )
    parser.add_argument(
        "--granularity",
        choices=[OPERATOR],
        help="operator: have a framework that executes several operators as one execute "
        "each alone; the program runs in another way, and slower",
    )
    parser.add_argument(
        "--spool",
        metavar="DIR",
        help="keep raw files here until the end (default: a temporary folder if the recording is "
        "on a network)",
    )
    parser.add_argument(
        "--step-mark",
        metavar="WHAT",
        help="what a step is: the name of a range (NAME#: with any number behind it), a module "
        "(Net.encoder) or an operator, or FILE:LINE of a range",
    )
    _layers.configure(parser)
    _window.configure(parser)
    _size.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Record; the program's own exit status, or its signal again."""
    layers = _layers.layers_of(arguments)
    budget = _layers.budget_of(arguments, layers)
    asked = RunOptions(
        words=[arguments.program, *arguments.arguments],
        layers=layers,
        rate_hz=_layers.rate_of(arguments, layers),
        budget=budget,
        profiler_share=_layers.profiler_share_of(arguments, budget),
        size=_size.options_of(arguments),
        window=_window.window_of(arguments),
        output=arguments.output or "",
        ranks=arguments.ranks or "",
        spool=arguments.spool or "",
        step_mark=arguments.step_mark or "",
        granularity=arguments.granularity or "",
        shapes=arguments.shapes,
        quiet=arguments.quiet,
        verbose=arguments.verbose,
    )
    return record(asked)

"""Record a program that runs already, from outside.

Nothing gets into the program and nothing stops it: the kernel copies its stacks, and Python's
frames (CPython 3.11 to 3.14) are read from its memory. The recording is like any other, without
what only `layerscope run` can see: operators, modules, steps, primitives. With --operators it has
those too: CPython 3.14 executes a script of ours in the program, which loads the recorder.

    layerscope attach 4711 --for 30
    layerscope attach 4711 --tree -o job
    layerscope attach 4711 --operators --for 60

It needs the program's user, or root. Ctrl-C ends the recording, not the program.
"""

from __future__ import annotations

import argparse

from layerscope.capture.sampler import HZ, MOST_HZ
from layerscope.cli import _size
from layerscope.cli._pid import pid_of
from layerscope.model.errors import UsageError
from layerscope.session.attach import AttachOptions, attach


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("pid", metavar="PID", help="the number of the process")
    parser.add_argument(
        "--for", dest="for_s", metavar="S", help="record for so many seconds (default: to its end)"
    )
    parser.add_argument("--tree", action="store_true", help="record its children too, and theirs")
    parser.add_argument(
        "--operators",
        action="store_true",
        help="have CPython 3.14 load the recorder into the program, and record its operators too",
    )
    parser.add_argument(
        "-o", "--output", metavar="NAME", help="the recording (default: the program, then -2)"
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing, not even the summary"
    )
    parser.add_argument(
        "--rate",
        metavar="HZ",
        default=str(HZ),
        help=f"samples a second of CPU time, up to {MOST_HZ} (default {HZ})",
    )
    _size.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Record it; 0."""
    return attach(
        AttachOptions(
            pid=pid_of(arguments.pid),
            for_s=None if arguments.for_s is None else _seconds_of(arguments.for_s),
            tree=arguments.tree,
            operators=arguments.operators,
            output=arguments.output or "",
            rate_hz=_rate_of(arguments.rate),
            size=_size.options_of(arguments),
            quiet=arguments.quiet,
        )
    )


def _seconds_of(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 1e9:
        raise UsageError(f"--for {word}: give seconds, such as 30 or 0.5")
    return seconds


def _rate_of(word: str) -> int:
    if not word.isascii() or not word.isdigit() or not 1 <= int(word) <= MOST_HZ:
        raise UsageError(f"--rate {word}: give a whole number from 1 to {MOST_HZ}")
    return int(word)

"""Show what a program does while it runs: functions, operators, threads, waits.

RUN is a recording that is being made by `layerscope run`; left out, it is the newest one here. PID
is a program that runs: where nobody records it, it is recorded from outside for as long as it is
watched, without operators, and nothing is kept. The table is of the last seconds and of the time
since the program began, and is drawn anew twice a second. In a terminal keys choose the table and
hold the screen, ? lists them, and q or Ctrl-C ends it; the program goes on. Into a pipe it prints
one screen after the other.

    layerscope top                      the newest recording here
    layerscope top 4711                 a program that runs already
    layerscope top train --show operators
    layerscope top --once               one screen, for scripts
    layerscope top --json --for 10      one JSON object a line
"""

from __future__ import annotations

import argparse

from layerscope.model.errors import UsageError
from layerscope.model.live import SUMS

_LEAST_S, _MOST_S = 0.1, 3600.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `top`."""
    parser.usage = f"{parser.prog} [PID|RUN] [options]"
    parser.add_argument("target", nargs="?", metavar="PID|RUN", help="what to watch")
    parser.add_argument(
        "--show", choices=list(SUMS), metavar="TABLE", help=f"begin with {', '.join(SUMS)}"
    )
    parser.add_argument(
        "--interval", metavar="S", type=float, default=0.5, help="seconds between screens (0.5)"
    )
    parser.add_argument(
        "--window", metavar="S", type=float, default=5.0, help="how many last seconds count (5)"
    )
    parser.add_argument("--for", metavar="S", type=float, dest="for_", help="end after S seconds")
    parser.add_argument(
        "--top", metavar="N", type=int, help="only the first N rows, 0: all (what fits; 20)"
    )
    parser.add_argument("--once", action="store_true", help="print one screen and end")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="say nothing when the program has ended"
    )


def run(arguments: argparse.Namespace) -> int:
    """Watch."""
    for option, seconds in (
        ("--interval", arguments.interval),
        ("--window", arguments.window),
        ("--for", arguments.for_),
    ):
        if seconds is not None and not _LEAST_S <= seconds <= _MOST_S:
            raise UsageError(f"{option} {seconds:g}: it takes {_LEAST_S} to {_MOST_S:,.0f} seconds")
    if arguments.top is not None and arguments.top < 0:
        raise UsageError(f"--top {arguments.top} is not a number of rows; 0 shows all of them")
    from layerscope.session.top import TopOptions, top

    return top(
        TopOptions(
            arguments.target,
            arguments.show or "",
            arguments.interval,
            arguments.window,
            arguments.for_,
            arguments.top,
            arguments.once,
            arguments.json,
            arguments.quiet,
        )
    )

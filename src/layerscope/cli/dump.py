"""Print what every thread of a running process does now, and on whom it waits.

The program is not stopped and does not notice: its memory is read from outside. Stacks have the
innermost function first. Threads with equal stacks are one block, the odd ones out come first; a
deadlock is said before everything else. docs/dump.md explains what can be known, and of whom.

    layerscope dump 4711
    layerscope dump 4711 --native
    layerscope dump 4711 --tree
"""

from __future__ import annotations

import argparse
import sys

from layerscope.cli._pid import pid_of
from layerscope.show import screen


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dump`."""
    parser.add_argument("pid", metavar="PID", help="the number of a process")
    parser.add_argument(
        "--native", action="store_true", help="functions of C and C++ too, with their libraries"
    )
    parser.add_argument(
        "--tree",
        action="store_true",
        help="the processes that it has started too, such as the ranks of a distributed job, "
        "side by side",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not name the next command")


def run(arguments: argparse.Namespace) -> int:
    """Print one look."""
    from layerscope.capture.sampler import BINARY
    from layerscope.host import process_tree
    from layerscope.running import snapshot
    from layerscope.show import dump_json, dump_text

    pid = pid_of(arguments.pid)
    pids = process_tree.family(pid, process_tree.parents()) if arguments.tree else [pid]
    found = snapshot.take(BINARY, pids, arguments.native)
    if arguments.json:
        sys.stdout.flush()
        dump_json.write(found, sys.stdout.buffer)
        return 0
    dump_text.write(found, sys.stdout, arguments.tree)
    if not arguments.quiet and found.processes[0].is_read:
        screen.tell(f"Next: layerscope attach {pid}")
    return 0

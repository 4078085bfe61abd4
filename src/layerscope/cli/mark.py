"""Mark this moment in a recording that is being made.

The table `marks` has it with its name, as `outside`, and so have the report and the exports: what
somebody did to the job, or saw. A mark is taken whether a window is open or not.

    layerscope mark "second node added"         # the only recording that is being made here
    layerscope mark train "batch size 64"       # train.layerscope
    layerscope mark 4711 "batch size 64"        # the recording that process 4711 belongs to
"""

from __future__ import annotations

import argparse

from layerscope.cli import _steer
from layerscope.model.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "words",
        metavar="[RUN|PID] NAME",
        nargs="+",
        help="a recording that is being made, or a process in it (default: the only one here), and "
        "what the moment is called",
    )
    _steer.configure_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the mark."""
    from layerscope.session.create import shown, text

    if len(arguments.words) > 2:
        raise UsageError(
            "a mark has one name: put it in quotes. For example: layerscope mark train 'batch size "
            "64'"
        )
    *recording, name = arguments.words
    if not name.strip():
        raise UsageError("a mark needs a name. For example: layerscope mark train loaded")
    word = recording[0] if recording else None
    answers = _steer.ask(word, {"what": "mark", "name": text(name)})
    path, first = answers[0]
    sentence = f"{shown(path)}: marked {name!r}, {first['run_s']:.1f} s after the recording's start"
    more = 'layerscope query "from marks" shows all marks when it has ended'
    _steer.say(arguments, "mark", answers, f"{sentence}; {more}")
    return 0

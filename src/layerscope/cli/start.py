"""Start recording a program that runs under `layerscope run --paused`.

Opens a window of its recording: all processes of the program are recorded until `layerscope stop`,
or for as long as --for says. A window that is open already stays open, and closes when this command
says. Any number of windows make one recording; its steps keep the numbers of the whole run.

A program that was started with LAYERSCOPE_AUTOSTART=standby, where layerscope is installed, is
named by its pid: the first `start` makes a recording of it in this folder.

    layerscope run --paused train.py &
    layerscope start                    # the only recording that is being made here
    layerscope start --for 60           # a minute; it closes by itself
    layerscope start train              # train.layerscope
    layerscope start 4711               # the recording that process 4711 belongs to
"""

from __future__ import annotations

import argparse

from layerscope.cli import _steer, _window


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _steer.configure(parser)
    parser.add_argument(
        "--for", metavar="S", dest="for_", help="close the window again after S seconds"
    )


def run(arguments: argparse.Namespace) -> int:
    """Open the window."""
    from layerscope.session.create import shown

    for_s = None if arguments.for_ is None else _window.seconds("--for", arguments.for_)
    _steer.open_standby(arguments.recording)
    answers = _steer.ask(arguments.recording, {"what": "start", "for_s": for_s})
    path, first = answers[0]
    is_again = all(answer["was_open"] for _, answer in answers)
    does = "is being recorded already" if is_again else "is recorded from now on"
    until = "layerscope stop ends that" if for_s is None else f"that ends in {for_s:g} s"
    program = f"{shown(path)}: the program {does}, {first['run_s']:.1f} s after its start"
    _steer.say(arguments, "start", answers, f"{program}; {until}")
    return 0

"""Stop recording a program that runs under `layerscope run --paused`.

Closes the window that `layerscope start` has opened; the program goes on, and the next `layerscope
start` opens another one. Where none is open nothing changes.

    layerscope stop                     # the only recording that is being made here
    layerscope stop train               # train.layerscope
    layerscope stop 4711                # the recording that process 4711 belongs to
"""

from __future__ import annotations

import argparse

from layerscope.cli import _steer


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    _steer.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Close the window."""
    from layerscope.session.create import shown

    answers = _steer.ask(arguments.recording, {"what": "stop"})
    path, first = answers[0]
    was_open = any(answer["was_open"] for _, answer in answers)
    does = "was not being recorded"
    if was_open:
        does = "is not recorded from now on"
    program = f"{shown(path)}: the program {does}, {first['run_s']:.1f} s after its start"
    _steer.say(arguments, "stop", answers, f"{program}; what there is: layerscope summary")
    return 0

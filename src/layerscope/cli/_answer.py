"""Answer one request of a program that is being recorded (internal).

The request is JSON: `stats` asks for sums by name, `dump` for a Chrome trace in a file. The answer
goes to standard input where that is a socket, in packets; until it is ready a blank a second says
that it is coming. Instead of a request `-`: one that comes by standard input, with the descriptor
for the answer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from layerscope.session.answer import (
    BY_STANDARD_INPUT,
    answer_request,
    be_quiet,
    wait_for_request,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("recording", type=Path)
    parser.add_argument("request")


def run(arguments: argparse.Namespace) -> int:
    """Make the answer and send it."""
    be_quiet()
    if arguments.request != BY_STANDARD_INPUT:
        return answer_request(arguments.recording, json.loads(arguments.request))
    request = wait_for_request()
    if request is None:
        return 0
    return answer_request(arguments.recording, request)

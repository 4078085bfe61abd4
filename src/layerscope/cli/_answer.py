"""Answer one request of a program that is being recorded (internal).

The request is JSON: `stats` asks for sums by name, `dump` for a Chrome trace in a file. The answer
goes to standard input where that is a socket, in packets; until it is ready a blank a second says
that it is coming.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from layerscope.session.answer import answer_request


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("recording", type=Path)
    parser.add_argument("request", type=json.loads)


def run(arguments: argparse.Namespace) -> int:
    """Make the answer and send it."""
    return answer_request(arguments.recording, arguments.request)

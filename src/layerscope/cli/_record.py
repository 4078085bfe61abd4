"""Stand beside a program that runs already and record it to its end (internal).

Started by `layerscope.profiler` inside the program. Leaves it at once: no child of the program, not
in its session, with nothing of it open. Prints one line of JSON when it is ready, then nothing.
"""

from __future__ import annotations

import argparse
import json

from layerscope.session.record import record_beside


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "about", type=json.loads, help="JSON: pid, and the recording's folder and stem"
    )


def run(arguments: argparse.Namespace) -> int:
    """Record until the program has ended."""
    return record_beside(arguments.about)

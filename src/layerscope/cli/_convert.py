"""Convert the raw files of a recording into tables while they grow (internal).

Started beside the program. On standard input the session says that the recording is complete; where
it was killed, standard input closes when the drainer has ended. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from layerscope.session.convert import convert_beside


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("raw", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("run_id")


def run(arguments: argparse.Namespace) -> int:
    """Convert until the recording is complete."""
    status = convert_beside(arguments.raw, arguments.tables, arguments.run_id)
    sys.stderr.flush()
    # All is written. To free what is in memory piece by piece would take 50 ms.
    os._exit(status)

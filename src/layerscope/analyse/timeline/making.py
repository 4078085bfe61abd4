"""Writes the columns of a recording: the process that `kept.py` starts."""

from __future__ import annotations

import pickle
import sys

from layerscope.analyse.timeline import columns
from layerscope.analyse.timeline.kept import CANNOT_WRITE
from layerscope.model.errors import LayerscopeError
from layerscope.recording.reader import Reader


def main() -> None:
    """Write the columns of the recording that standard input names."""
    run, folder = pickle.load(sys.stdin.buffer)
    try:
        with Reader(run) as reader:
            columns.write(reader, folder)
    except LayerscopeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        sys.exit(CANNOT_WRITE)

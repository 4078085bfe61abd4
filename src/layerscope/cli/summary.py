"""Print the summary of a recording again: steps, operators, and what was not recorded.

RUN is a folder made by `layerscope run`, with or without its suffix, a packed recording, a trace of
the profiler of PyTorch or MXNet, a log of the verbose modes of oneDNN and MKL, a perf.data, the
text of `perf script`, folded stacks, or what other tools wrote about memory; left out, it is the
newest recording here.

    layerscope summary
    layerscope summary dnnl_verbose.log
"""

from __future__ import annotations

import argparse
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `summary`."""
    parser.add_argument(
        "recording", metavar="RUN", nargs="?", help="the recording (default: the newest one here)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    from layerscope.analyse.summary import summarise
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run
    from layerscope.show.summary import text

    with Reader(open_run(find_run(arguments.recording))) as reader:
        sys.stdout.write(text(summarise(reader), arguments.recording or ""))
    return 0

"""Convert the raw files of a recording into tables while they grow (internal).

Started beside the program; standard input closes when the recording is complete. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

POLL_S = 0.5
# The program comes first: beside busy cores the conversion waits, and catches up when they are free.
NICE = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("raw", type=Path)
    parser.add_argument("tables", type=Path)


def run(arguments: argparse.Namespace) -> int:
    """Convert until standard input closes, then finish."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    # Imported here: the verb's file must load fast for `layerscope --help`.
    from layerscope.cli._conversion import RunConversion, read_session

    conversion = RunConversion(arguments.raw, arguments.tables)
    tables = arguments.tables
    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        conversion.advance()
    conversion.finish(read_session(arguments.raw))
    decoders = [process.decoder for process in conversion.processes.values()]
    print(
        json.dumps(
            {
                "cpu_ns": time.process_time_ns(),
                "rows": conversion.rows,
                "tables": str(tables),
                "records": sum(decoder.records for decoder in decoders),
                "dropped": sum(loss.lost for decoder in decoders for loss in decoder.losses),
                "agent_cpu_ns": sum(decoder.final.get("agent_cpu_ns", 0) for decoder in decoders),
                "operator_cost_ns": max([decoder.final.get("operator_cost_ns", 0) for decoder in decoders] + [0]),
            }
        )
    )
    return 0

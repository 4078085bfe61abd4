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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerscope.cli._conversion import RunConversion

POLL_S = 0.5
# The program comes first: beside busy cores the conversion waits, and catches up when they are free.
NICE = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("raw", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("run_id")


def run(arguments: argparse.Namespace) -> int:
    """Convert until standard input closes, then finish."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    conversion = convert_while_growing(arguments.raw, arguments.tables, arguments.run_id)
    from layerscope.cli._spans import BACKWARD

    decoders = [process.decoder for process in conversion.processes.values()]
    print(
        json.dumps(
            {
                "cpu_ns": time.process_time_ns(),
                "rows": conversion.rows,
                "tables": str(conversion.tables),
                "records": sum(decoder.records for decoder in decoders),
                "dropped": sum(loss.lost for decoder in decoders for loss in decoder.losses),
                "agent_cpu_ns": sum(decoder.final.get("agent_cpu_ns", 0) for decoder in decoders),
                "backward": sum(process.spans_of(BACKWARD) for process in conversion.processes.values()),
            }
        )
    )
    return 0


def convert_while_growing(raw: Path, tables: Path, run_id: str) -> RunConversion:
    """The finished conversion of `raw`: in `tables`, or in the cache when the disk there is full."""
    # Imported here: the verb's file must load fast for `layerscope --help`.
    from layerscope.cli._conversion import RunConversion, read_session
    from layerscope.cli._open import cached_tables, convert_into, mark_complete, remove_tables

    conversion = RunConversion(raw, tables)
    try:
        while not select.select([sys.stdin], [], [], POLL_S)[0]:
            conversion.advance()
        conversion.finish(read_session(raw))
        mark_complete(tables, raw, conversion.rows)
        return conversion
    except OSError:
        remove_tables(tables)
    select.select([sys.stdin], [], [])
    folder = cached_tables(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    remade: RunConversion = convert_into(raw, folder, read_session(raw))
    return remade

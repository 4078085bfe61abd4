"""How large a recording may become: the options of `run`, and what they say to the drainer and
every conversion.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from layerscope.model.errors import UsageError
from layerscope.model.units import size
from layerscope.rawfile.raw_file import FULL, LEAST_SIZE_BYTES, MAX_SIZE, MAX_SIZE_BYTES

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        help="maximum size of the recording, such as 500MB (default 2GB); longer runs are thinned",
    )
    parser.add_argument("--full", action="store_true", help="keep every span, whatever the size")


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is kept beside the raw files; UsageError when it cannot be meant."""
    if arguments.full:
        if arguments.max_size:
            raise UsageError(
                "--full keeps everything and --max-size does not. Leave one of them out"
            )
        return {FULL: True}
    return {MAX_SIZE: _bytes_of(arguments.max_size) if arguments.max_size else MAX_SIZE_BYTES}


def _bytes_of(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?", text.strip().upper())
    if not found:
        raise UsageError(f"--max-size {text}: give a number with a unit, such as 500MB or 2GB")
    number, unit = found.groups()
    size_bytes = round(float(number) * _UNITS[unit])
    if size_bytes < LEAST_SIZE_BYTES:
        raise UsageError(
            f"--max-size {text} is too small: at least {size(LEAST_SIZE_BYTES)} are needed"
        )
    return size_bytes

"""Prints several tables of a recording as one JSON object: one process for all of them.

usage: read_tables.py RUN {"NAME": ["WORD", ...], ...}   the words are those of `layerscope table`
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from layerscope.cli import main

OPTIONS = ("--json", "--top", "0")


def table(path: str, words: list[str]) -> object:
    """What `layerscope table` prints; fails as it does."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(output):
        status = main(["table", path, *words, *OPTIONS])
    if status:
        sys.exit(status)
    output.seek(0)
    return json.load(output)


if __name__ == "__main__":
    run, asked = sys.argv[1], json.loads(sys.argv[2])
    json.dump({name: table(run, words) for name, words in asked.items()}, sys.stdout)

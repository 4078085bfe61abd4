"""List the recordings in a folder, the newest first, with duration and size.

layerscope list
layerscope list experiments --json
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.model.errors import LayerscopeError, UsageError

if TYPE_CHECKING:
    from layerscope.analyse.result import Result

_Row = tuple[str, str, str, str, int | None, int]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `list`."""
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default=".", help="where to look (default: here)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print one row for each recording."""
    from layerscope.show import json_output, terminal

    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder. To look into one recording: layerscope summary {folder}"
        )
    result = _result(folder)
    if arguments.json:
        sys.stdout.flush()
        json_output.write(result, sys.stdout.buffer, "list", str(folder))
    else:
        terminal.write(result, sys.stdout)
    return 0


def _result(folder: Path) -> Result:
    from layerscope.analyse.result import BYTES, NS, ResultColumn, of_rows
    from layerscope.recording.run import PACKED, SUFFIX

    columns = (
        ResultColumn("recording", "string", "", "its name"),
        ResultColumn("state", "string", "", "running, finished, killed, packed or damaged"),
        ResultColumn("started_utc", "string", "", "when the program was started"),
        ResultColumn("command", "string", "", "the program and its arguments"),
        ResultColumn(
            "wall_ns", "int64", NS, "how long the program ran; null where that is not known"
        ),
        ResultColumn("size_bytes", "int64", BYTES, "what it takes on disk"),
    )
    folders = [path for path in folder.glob(f"*{SUFFIX}") if (path / "run.json").exists()]
    packed = [path for path in folder.glob(f"*{PACKED}") if path.is_file()]
    rows = [*map(_of_folder, folders), *map(_of_file, packed)]
    rows.sort(key=lambda row: row[2], reverse=True)
    return of_rows(
        "list",
        columns,
        rows,
        empty=f"No recording in {folder.absolute()}. Make one: layerscope run train.py",
    )


def _of_folder(path: Path) -> _Row:
    from layerscope.ingest.open import is_growing, session_lives
    from layerscope.recording.run import SUFFIX, Run
    from layerscope.session.finish import folder_bytes

    name, size = _text(path.name.removesuffix(SUFFIX)), folder_bytes(path)
    try:
        run = Run.open(path)
    except LayerscopeError:
        return name, "damaged", "", "", None, size
    info = run.info
    state = info.state
    if state == "running" and not (run.is_joined or session_lives(run) or is_growing(run.raw)):
        state = "killed"
    return (
        name,
        state,
        info.started_utc,
        shlex.join(info.command),
        info.program.wall_ns or None,
        size,
    )


def _of_file(path: Path) -> _Row:
    """A packed recording, which is not opened for it."""
    name = _text(path.name)
    size = path.stat().st_size
    return name, "packed", "", "", None, size


def _text(name: str) -> str:
    """The name as it can be written anywhere, whatever bytes it has."""
    return os.fsencode(name).decode("utf-8", "replace")

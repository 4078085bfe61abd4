"""Write one page that shows where the time went: timeline, flame graph, tables, all linked.

RUN is a recording made by `layerscope run`, or a file that another program wrote; left out, it is
the newest one here. The page is one file, RUN.html unless -o names another. It opens in a browser
from the disk and asks the network for nothing.

    layerscope report                       the newest recording
    layerscope report train -o train.html   another one, into a file of that name
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_NEXT = "open it in a browser: ? lists the keys"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.usage = f"{parser.prog} [RUN] [-o FILE.html] [options]"
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="a recording")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file (RUN.html)")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--json", action="store_true", help="print what was written as one JSON object"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def run(arguments: argparse.Namespace) -> int:
    """Write the page that `arguments` ask for."""
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    recording = find_run(arguments.run_name)
    with Reader(open_run(recording)) as reader:
        path = arguments.output or Path(f"{reader.run.name}.html")
        _check_place(path, arguments.force)
        spans = _write(reader, path)
        if arguments.json:
            _print_json(reader, recording, path, spans)
        elif not arguments.quiet:
            _print(reader, path, spans)
    return 0


def _check_place(path: Path, force: bool) -> None:
    if path.suffix != ".html":
        raise UsageError(f"the report is a page: {path.name!r} should end in .html")
    if path.is_dir():
        raise UsageError(f"{path} is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"{path} lies in a folder that does not exist")
    if path.exists() and not force:
        raise UsageError(f"{path} exists and was left as it is. --force replaces it")


def _write(reader: Reader, path: Path) -> int:
    """Write the page; how many spans are in it."""
    from layerscope.show.exports import whole_or_nothing
    from layerscope.show.report import document
    from layerscope.show.report.contents import contents

    found = contents(reader)
    with whole_or_nothing(path) as stream:
        document.write(reader.run.name, found.head, found.blocks, stream)
    return found.spans


def _print(reader: Reader, path: Path, spans: int) -> None:
    from layerscope.analyse.losses import problems
    from layerscope.model.units import size
    from layerscope.show import terminal

    for sentence in terminal.problem_lines(problems(reader)):
        screen.tell(f"layerscope: {sentence}")
    counted = "1 span" if spans == 1 else f"{spans:,} spans"
    screen.tell(f"{path}: {counted}, {size(path.stat().st_size)}")
    screen.tell(f"Next: {_NEXT}")


def _print_json(reader: Reader, recording: Path, path: Path, spans: int) -> None:
    """One row about the file."""
    from layerscope.analyse.losses import problems
    from layerscope.analyse.result import BYTES, COUNT, ResultColumn, of_rows
    from layerscope.show import json_output

    columns = (
        ResultColumn("file", "string", "", "the file"),
        ResultColumn("spans", "int64", COUNT, "spans in it"),
        ResultColumn("bytes", "int64", BYTES, "size of the file"),
    )
    row = (str(path), spans, path.stat().st_size)
    result = of_rows("files", columns, [row], problems=problems(reader))
    sys.stdout.flush()
    json_output.write(result, sys.stdout.buffer, "report", str(recording))

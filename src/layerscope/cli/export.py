"""Write a recording as a file for Perfetto, chrome://tracing, pandas or a spreadsheet.

RUN is a folder made by `layerscope run`, with or without its suffix; left out, it is the newest
one here. The extension of FILE chooses the format.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.cli._place import check_place
from layerscope.cli._steps import steps_of
from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader
    from layerscope.show.exports import Exported


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    from layerscope.show import exports

    modules = {module.__doc__: module for _, module in sorted(exports.formats().items())}
    listed = "\n".join(
        f"  {', '.join(m.SUFFIXES):<16} {_first_line(m.__doc__)}" for m in modules.values()
    )
    parser.usage = f"{parser.prog} [RUN] FILE [options]"
    parser.epilog = f"the formats:\n{listed}"
    parser.add_argument(
        "words", nargs="+", metavar="[RUN] FILE", help="a recording, and the file to write"
    )
    parser.add_argument(
        "--steps", metavar="A:B", help="only the spans of the steps from A up to, not including, B"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--json", action="store_true", help="print what was written as one JSON object"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def run(arguments: argparse.Namespace) -> int:
    """Write the file that `arguments` ask for."""
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run
    from layerscope.show import exports

    where, path = _run_and_file(arguments.words)
    module = exports.format_of(path)
    steps = steps_of(arguments.steps)
    check_place(path, arguments.force)
    recording = find_run(where)
    with Reader(open_run(recording)) as reader:
        exported = exports.export(reader, path, steps)
        if arguments.json:
            _print_json(reader, recording, path, exported)
        elif not arguments.quiet:
            _print(reader, path, exported)
            screen.tell(f"Next: {module.OPEN}")
    return 0


def _print_json(reader: Reader, recording: Path, path: Path, exported: Exported) -> None:
    """One row about the file."""
    from layerscope.analyse.losses import problems
    from layerscope.analyse.result import BYTES, COUNT, Result, ResultColumn
    from layerscope.show import json_output

    columns = (
        ResultColumn("file", "string", "", "the file"),
        ResultColumn("spans", "int64", COUNT, "spans in it"),
        ResultColumn(
            "crossing",
            "int64",
            COUNT,
            "spans on a track beside their thread, because they cross others",
        ),
        ResultColumn("bytes", "int64", BYTES, "size of the file"),
    )
    row = [str(path), exported.spans, exported.crossing, path.stat().st_size]
    relation = reader.connection().sql(
        "SELECT ? AS file, ? AS spans, ? AS crossing, ? AS bytes", params=row
    )
    result = Result("files", columns, relation, "file", exported.notes, problems=problems(reader))
    sys.stdout.flush()
    json_output.write(result, sys.stdout.buffer, "export", str(recording))


def _print(reader: Reader, path: Path, exported: Exported) -> None:
    from layerscope.analyse.losses import problems
    from layerscope.model.units import size
    from layerscope.show import terminal

    for sentence in (*terminal.problem_lines(problems(reader)), *exported.notes):
        screen.tell(f"layerscope: {sentence}")
    spans = "1 span" if exported.spans == 1 else f"{exported.spans:,} spans"
    if exported.crossing:
        spans += (
            f", {exported.crossing:,} of them on a track beside their thread because they "
            "cross others"
        )
    screen.tell(f"{path}: {spans}, {size(path.stat().st_size)}")


def _run_and_file(words: list[str]) -> tuple[str | None, Path]:
    if len(words) > 2:
        given = shlex.join(words)
        raise UsageError(f"at most a recording and one file, not {len(words)} words: {given}")
    *runs, file = words
    run = runs[0] if runs else None
    return run, Path(file)


def _first_line(documentation: str | None) -> str:
    lines = (documentation or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else ""

"""Write one page that shows where the time went: timeline, flame graph, tables, all linked.

RUN is a recording made by `layerscope run`, or a file that another program wrote; left out, it is
the newest one here. The page is one file, RUN.html unless -o names another. It opens in a browser
from the disk and asks the network for nothing.

Of a recording with more than --max-spans spans whole steps are kept, each with the weight of those
that it stands for; the page says so. `layerscope view` shows all of them. --steps keeps some steps
instead. --redact leaves out what `layerscope pack --redact` leaves out: what could identify the
owner (docs/pack.md has the list).

    layerscope report                       the newest recording
    layerscope report train -o train.html   another one, into a file of that name
    layerscope report train --steps 10:20   only the steps 10 to 19
    layerscope report after --compare before   with what changed since `before`
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.cli._place import check_place
from layerscope.cli._steps import steps_of
from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

MOST_SPANS = 5_000_000
_NEXT = "open it in a browser: ? lists the keys"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.usage = f"{parser.prog} [RUN] [-o FILE.html] [options]"
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="a recording")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file (RUN.html)")
    parser.add_argument(
        "--steps",
        metavar="A:B",
        help="only the spans and samples of the steps from A up to, not including, B",
    )
    parser.add_argument(
        "--max-spans",
        metavar="N",
        type=int,
        default=MOST_SPANS,
        help=f"keep whole steps with about N spans of a larger recording ({MOST_SPANS:,})",
    )
    parser.add_argument(
        "--redact", action="store_true", help="leave out what could identify the owner"
    )
    parser.add_argument(
        "--compare", metavar="OTHER", help="with a page that compares it with an earlier recording"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--json", action="store_true", help="print what was written as one JSON object"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def run(arguments: argparse.Namespace) -> int:
    """Write the page that `arguments` ask for."""
    from layerscope.cli._redacted import redacted
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    if arguments.max_spans < 1:
        raise UsageError(f"--max-spans {arguments.max_spans} leaves nothing: it is 1 or more")
    steps = steps_of(arguments.steps)
    recording = find_run(arguments.run_name)
    opened = open_run(recording)
    path = arguments.output or Path(f"{opened.name}.html")
    _check_place(path, arguments.force)
    with contextlib.ExitStack() as stack:
        if arguments.redact:
            opened = stack.enter_context(redacted(opened, path.parent))
        reader = stack.enter_context(Reader(opened))
        other = _compared(stack, path.parent, arguments)
        written = _write(reader, other, path, steps, arguments)
        if arguments.json:
            _print_json(reader, recording, path, written)
        elif not arguments.quiet:
            _print(reader, path, written)
    return 0


def _compared(
    stack: contextlib.ExitStack, folder: Path, arguments: argparse.Namespace
) -> Reader | None:
    """The recording that came before; None: none was named. `stack` closes it."""
    from layerscope.cli._redacted import redacted
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    if arguments.compare is None:
        return None
    opened = open_run(find_run(arguments.compare))
    if arguments.redact:
        opened = stack.enter_context(redacted(opened, folder))
    return stack.enter_context(Reader(opened))


def _check_place(path: Path, force: bool) -> None:
    """Refuse what is no place for a page."""
    if path.suffix != ".html":
        raise UsageError(f"the report is a page: {path.name!r} should end in .html")
    check_place(path, force)


class _Page(Struct, frozen=True):
    """How many spans are in the page, and what is to be said of them."""

    spans: int
    notes: tuple[str, ...]


def _write(
    reader: Reader,
    other: Reader | None,
    path: Path,
    steps: range | None,
    arguments: argparse.Namespace,
) -> _Page:
    from layerscope.analyse.kept_spans import part_of
    from layerscope.show.exports import whole_or_nothing
    from layerscope.show.report import document
    from layerscope.show.report.contents import ReportContents

    part = part_of(reader, steps, arguments.max_spans, _view_command(reader, arguments))
    before = other and part_of(other, None, arguments.max_spans, "layerscope view")
    found = ReportContents(reader, part, before or other)
    with whole_or_nothing(path) as stream:
        document.write(reader.run.name, found.head(), found.blocks(), stream)
    return _Page(found.spans, tuple(found.notes))


def _view_command(reader: Reader, arguments: argparse.Namespace) -> str:
    """What shows all of the recording; its name is nobody's business where it was redacted."""
    words = ["layerscope", "view"]
    return shlex.join(words if arguments.redact else [*words, reader.run.name])


def _print(reader: Reader, path: Path, written: _Page) -> None:
    from layerscope.analyse.losses import problems
    from layerscope.model.units import size
    from layerscope.show import terminal

    for sentence in (*terminal.problem_lines(problems(reader)), *written.notes):
        screen.tell(f"layerscope: {sentence}")
    counted = "1 span" if written.spans == 1 else f"{written.spans:,} spans"
    screen.tell(f"{path}: {counted}, {size(path.stat().st_size)}")
    screen.tell(f"Next: {_NEXT}")


def _print_json(reader: Reader, recording: Path, path: Path, written: _Page) -> None:
    """One row about the file."""
    from layerscope.analyse.losses import problems
    from layerscope.analyse.result import BYTES, COUNT, ResultColumn, of_rows
    from layerscope.show import json_output

    columns = (
        ResultColumn("file", "string", "", "the file"),
        ResultColumn("spans", "int64", COUNT, "spans in it"),
        ResultColumn("bytes", "int64", BYTES, "size of the file"),
    )
    row = (str(path), written.spans, path.stat().st_size)
    result = of_rows("files", columns, [row], notes=written.notes, problems=problems(reader))
    sys.stdout.flush()
    json_output.write(result, sys.stdout.buffer, "report", str(recording))

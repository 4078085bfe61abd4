"""Remove caches and leftovers, or the recordings that are named.

Without a name it removes what is no longer in use: raw files outside of recordings, cached tables
of recordings that were deleted, unpacked archives, results for builds of torch that were removed,
and every cache that was not used for 30 days (--all: recently used ones too). All of it is made
again when needed. A recording is removed only if it is named, never while it is being recorded.
docs/clean.md lists the folders.

    layerscope clean --dry-run
    layerscope clean train train-2
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.model.errors import RunError, UsageError

if TYPE_CHECKING:
    from layerscope.analyse.result import Result
    from layerscope.recording.run import Run
    from layerscope.session.leftovers import Leftover

# What lies in the folder of a recording, beside its tables.
_OWN = {
    *("run.json", "raw", "raw.tmp", "ranks", "launch.json", "joined.json", "summary.txt"),
    *(".gitignore", ".lock"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clean`."""
    parser.add_argument(
        "recordings", metavar="RUN", nargs="*", help="remove these recordings, and nothing else"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    parser.add_argument("--all", action="store_true", help="remove recently used caches too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


class _Removed(Struct):
    """One row: what is there, its size, and why it is not gone if it should be."""

    leftover: Leftover
    bytes: int
    failed: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Remove, and print what."""
    from layerscope.session import leftovers

    if arguments.recordings:
        found = [part for name in arguments.recordings for part in _recording(name)]
    else:
        found = list(leftovers.find(arguments.all))
    rows = [_remove(leftover, arguments.dry_run) for leftover in found if not leftover.kept]
    kept = [leftover for leftover in found if leftover.kept]
    if arguments.json:
        from layerscope.show import json_output

        sys.stdout.flush()
        json_output.write(_result(rows, kept, arguments.dry_run), sys.stdout.buffer, "clean", "")
    elif not arguments.quiet:
        from layerscope.show import terminal

        terminal.write(_result(rows, kept, arguments.dry_run), sys.stdout)
    failed = [row for row in rows if row.failed]
    if failed:
        raise RunError(
            f"{failed[0].leftover.path} cannot be removed: {failed[0].failed}. The rest is done"
        )
    return 0


def _remove(leftover: Leftover, dry_run: bool) -> _Removed:
    from layerscope.session import leftovers

    try:
        row = _Removed(leftover, leftovers.size_bytes(leftover.path))
    except OSError:
        return _Removed(leftover, 0)  # somebody else was faster
    if dry_run:
        return row
    try:
        # At once under another name: nobody finds half a recording.
        gone = leftover.path.with_name(f".{leftover.path.name}-{secrets.token_hex(4)}")
        os.rename(leftover.path, gone)
        leftovers.remove(gone)
    except OSError as error:
        row.failed = error.strerror or str(error)
    return row


def _recording(name: str) -> list[Leftover]:
    """A recording with what belongs to it elsewhere. UsageError when it is none, or is being
    made.
    """
    from layerscope.ingest.open import open_folder
    from layerscope.recording import packed
    from layerscope.recording.run import PACKED, find_run
    from layerscope.session import leftovers
    from layerscope.session.leftovers import Leftover

    path = find_run(name).absolute()
    if path.is_symlink():
        raise UsageError(f"{path} is a link, nothing was removed. Name {path.readlink()} itself")
    asked = "it is named on the command line"
    if packed.is_packed(path):
        if not path.name.endswith(PACKED):
            packed.check(path)  # any zip archive may be named
        return [Leftover("packed recording", path, asked)]
    run = open_folder(path)
    if _is_running(run):
        raise UsageError(
            f"{path} is being recorded, nothing was removed. Clean it when the program has ended"
        )
    entries = path.iterdir()
    strange = sorted(entry.name for entry in entries if not _is_own(entry))
    if strange:
        what = f"{path} holds {strange[0]}, which is no part of a recording"
        raise UsageError(f"{what}. Move it away first; nothing was removed")
    parts = [run, *_ranks(run)]
    raws = filter(None, map(leftovers.raw_folder_of, parts))
    run_ids = [part.info.run_id for part in parts]
    tables: list[Path] = []
    notes: list[Path] = []
    timelines: list[Path] = []
    for run_id in run_ids:
        tables += leftovers.tables_of(run_id)
        notes += leftovers.notes_of(run_id)
        timelines += leftovers.timelines_of(run_id)
    found = [Leftover("recording", path, asked)]
    of_it = (("raw files", raws), ("tables", tables), ("note", notes), ("timeline", timelines))
    for what, places in of_it:
        found += [Leftover(what, place, f"of {path}") for place in places]
    return found


def _ranks(run: Run) -> list[Run]:
    """The recordings of the ranks in this one."""
    from layerscope.recording import ranks

    return list(ranks.parts(run.path).values()) if run.is_joined else []


def _is_running(run: Run) -> bool:
    from layerscope.ingest.open import session_lives

    return any(
        part.info.state == "running" and session_lives(part) for part in _ranks(run) or [run]
    )


def _is_own(entry: Path) -> bool:
    from layerscope.model.schema import TABLES
    from layerscope.recording.complete import COMPLETE

    return (
        entry.name in _OWN
        or entry.name in TABLES
        or entry.name == COMPLETE
        or entry.suffix == ".tmp"
    )


def _result(rows: list[_Removed], kept: list[Leftover], dry_run: bool) -> Result:
    from layerscope.analyse.result import BYTES, ResultColumn, of_rows
    from layerscope.model import units

    columns = (
        ResultColumn("what", "string", "", "kind of thing"),
        ResultColumn("bytes", "int64", BYTES, "its size"),
        ResultColumn("removed", "bool", "", "whether it is gone"),
        ResultColumn("path", "string", "", "where it is or was"),
        ResultColumn("why", "string", "", "why it can go"),
    )
    table = [
        (
            row.leftover.what,
            row.bytes,
            not dry_run and not row.failed,
            _text(row.leftover.path),
            row.leftover.why,
        )
        for row in rows
    ]
    size = units.size(sum(row.bytes for row in rows if not row.failed))
    done = (
        f"{size} would be given back: run it without --dry-run."
        if dry_run
        else f"{size} given back."
    )
    notes = [f"Kept {_text(one.path)}: {one.kept}." for one in kept]
    empty = "There is nothing to remove."
    return of_rows("clean", columns, table, notes=(*([done] if rows else []), *notes), empty=empty)


def _text(path: Path) -> str:
    """The path as it can be written anywhere, whatever bytes it has."""
    return os.fsencode(path).decode("utf-8", "replace")

"""Opens a recording for a command: converts first what was not converted, or only in part.

A recording whose session was killed, that is still running, that was copied without its tables or whose
tables are damaged has its raw files, and those are enough. Where its folder cannot be written, its tables
go to the user's cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from layerscope import places
from layerscope.cli._joined import joined_info, joined_session
from layerscope.collect.spool import raw_bytes, spools
from layerscope.errors import ReadError
from layerscope.host import cgroup
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.store.packed import is_packed, unpacked
from layerscope.store.reader import check_tables
from layerscope.store.run import Run, RunInfo, refuse_newer

COMPLETE = "tables.json"


def open_run(path: Path) -> Run:
    """The recording at `path`, ready to be read. ReadError in words when it is none or cannot be read."""
    run = open_folder(folder_of(path))
    _note_where_it_is(run)
    if run.is_joined:
        run.info = joined_info(run, session_lives)
    if run.info.state == "running" and (run.is_joined or session_lives(run)):
        return _convert_snapshot(run)
    if run.info.state == "running":
        run.info.state = "killed"
    for folder in (run.path, *cached_tables(run.info.run_id)):
        if _is_complete(folder, run.raw):
            run.tables_path = folder
            with contextlib.suppress(ReadError):
                check_tables(run)
                if folder != run.path:
                    places.remember(folder, run.path)
                return run
    if not spools(run.raw):
        if run.raw.is_symlink():
            raise ReadError(
                f"the raw files of {run.path} are still on host {run.info.host.get('name')}: copy "
                f"{run.raw.readlink()} from there in place of the link {run.raw}"
            )
        if _schema_of(run.path) < SCHEMA_VERSION:
            raise ReadError(
                f"{run.path} has the tables of an earlier layerscope ({run.info.layerscope}) and no raw files to make "
                "today's from: read it with that version"
            )
        raise ReadError(f"{run.path} has neither complete tables nor raw files: nothing is left to read")
    run.tables_path = convert(run)
    return run


def folder_of(path: Path) -> Path:
    """The folder with the recording at `path`, which may be packed or a file of another program."""
    if is_packed(path):
        return unpacked(path)
    if not path.is_file():
        return path
    from layerscope.cli._import import imported

    return imported(path)


def _note_where_it_is(run: Run) -> None:
    """A recording whose raw files lie elsewhere may have been moved: they still belong to it."""
    if run.raw.is_symlink():
        told = places.origin(run.raw.readlink())
        if told and told.is_here and places.is_absent(Path(told.path)):
            places.remember(run.raw.readlink(), run.path)


def convert(run: Run) -> Path:
    """Make the tables of `run` from its raw files, in its folder or in the cache; returns where they are."""
    session = _session(run)
    if run.info.state == "killed" and not session:
        session = {"problems": [_unfinished()]}
    return _convert_into_first((run.path, *cached_tables(run.info.run_id)), run, session)


def _convert_into_first(folders: Sequence[Path], run: Run, session: dict[str, Any]) -> Path:
    """The first of `folders` that takes the tables of `run`."""
    why = OSError(13, "no place can be written")
    for folder in folders:
        try:
            with _locked(folder):
                convert_into(run.raw, folder, session)
                if folder != run.path:
                    places.remember(folder, run.path)
                return folder
        except OSError as error:
            why = error
    raise ReadError(f"the tables of {run.path} cannot be written: {why}. Free some space, or set XDG_CACHE_HOME")


def _session(run: Run) -> dict[str, Any]:
    """What the session left, or those of all ranks."""
    from layerscope.cli._conversion import read_session

    return joined_session(run, session_lives) if run.is_joined else read_session(run.raw)


def convert_into(raw: Path, folder: Path, session: dict[str, Any]) -> Any:
    """Convert `raw` into `folder`, replacing what an earlier conversion left there."""
    from layerscope.cli._conversion import RunConversion

    remove_tables(folder)
    conversion = RunConversion(raw, folder, session.get("shifts_ns"), cgroup.facts().memory_most_bytes)
    conversion.finish(session)
    mark_complete(folder, raw, conversion.rows)
    return conversion


def mark_complete(folder: Path, raw: Path, rows: dict[str, int]) -> None:
    """Say by a file, written by rename, that every table in `folder` is whole, and from how much of `raw`."""
    temporary = folder / f"{COMPLETE}.tmp"
    temporary.write_text(json.dumps({"schema": SCHEMA_VERSION, "rows": rows, "raw_bytes": raw_bytes(raw)}))
    os.replace(temporary, folder / COMPLETE)


def _is_complete(folder: Path, raw: Path) -> bool:
    """Whether `folder` holds whole tables, as they are today, of all that `raw` holds now (a dropped `raw` does not
    count).
    """
    try:
        told = json.loads((folder / COMPLETE).read_text())
        covers = told["raw_bytes"] == raw_bytes(raw) or not spools(raw)
        return bool(covers and told["schema"] == SCHEMA_VERSION)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _schema_of(folder: Path) -> int:
    """The version of the tables in `folder`, if they are whole; else that of today."""
    try:
        return int(json.loads((folder / COMPLETE).read_text())["schema"])
    except (OSError, ValueError, KeyError, TypeError):
        return SCHEMA_VERSION


def remove_tables(folder: Path) -> None:
    """Remove the tables in `folder`, and nothing else."""
    from layerscope.model.schema import TABLES

    (folder / COMPLETE).unlink(missing_ok=True)
    for table in TABLES:
        shutil.rmtree(folder / table, ignore_errors=True)


def cached_tables(run_id: str) -> list[Path]:
    """Where the tables of a recording go that has no room for them, best first."""
    # Of a recording of somebody else's its id is text like any other: it names a folder here and leads nowhere else.
    name = run_id if re.fullmatch(r"[\w-]+", run_id) else _digest(run_id.encode())
    return [folder / name for folder in places.caches(places.TABLES)]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def open_folder(path: Path) -> Run:
    """`Run.open`, and a recording that lost its `run.json` but not its raw files."""
    try:
        return Run.open(path)
    except ReadError:
        with contextlib.suppress(OSError):
            refuse_newer(path, (path / "run.json").read_bytes())
        if not spools(path / "raw"):
            raise
    info = RunInfo(
        schema=SCHEMA_VERSION, layerscope="", run_id=f"unknown-{_digest(os.fsencode(path.absolute()))}", state="killed",
        command=["(unknown: run.json is damaged)"], cwd="", environment={}, host={}, started_utc="",
    )  # fmt: skip
    return Run(path, info)


def session_lives(run: Run) -> bool:
    """Whether the process that records `run` is still there."""
    process = Path(f"/proc/{run.info.session_pid}")
    try:
        words = (process / "cmdline").read_bytes()
        if b"layerscope" not in words:  # a program that records itself has our library in it
            words = (process / "maps").read_bytes()
    except OSError:
        return False
    return b"layerscope" in words and run.info.host.get("name") == os.uname().nodename


def _convert_snapshot(run: Run) -> Run:
    """A recording that still grows: what is there now, in the cache, made anew at each opening."""
    session = _session(run) if run.is_joined else {}
    run.tables_path = _convert_into_first(cached_tables(run.info.run_id + "-running"), run, session)
    return run


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One conversion at a time in `folder`; OSError when it cannot be written."""
    if not folder.is_dir():
        places.make(folder)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unfinished() -> dict[str, str]:
    return {
        "layer": "operators",
        "code": "session_killed",
        "what": "layerscope itself was killed before the program ended",
        "remedy": "what had been drained by then is here; let layerscope run to the end of the program",
        "lost": "everything after that moment, and how the program ended",
    }

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
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layerscope.cli._joined import joined_info, joined_session
from layerscope.collect.spool import spools
from layerscope.errors import ReadError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.store.packed import is_packed, unpacked
from layerscope.store.reader import check_tables
from layerscope.store.run import Run, RunInfo, refuse_newer

COMPLETE = "tables.json"


def open_run(path: Path) -> Run:
    """The recording at `path`, ready to be read. ReadError in words when it is none or cannot be read."""
    run = _open_folder(unpacked(path) if is_packed(path) else path)
    if run.is_joined:
        run.info = joined_info(run, _session_lives)
    if run.info.state == "running" and (run.is_joined or _session_lives(run)):
        return _convert_snapshot(run)
    for folder in (run.path, cached_tables(run.info.run_id)):
        if _is_complete(folder, run.raw):
            run.tables_path = folder
            with contextlib.suppress(ReadError):
                check_tables(run)
                return run
    if not spools(run.raw):
        if run.raw.is_symlink():
            raise ReadError(
                f"the raw files of {run.path} are still on host {run.info.host.get('name')}: copy "
                f"{run.raw.readlink()} from there in place of the link {run.raw}"
            )
        raise ReadError(f"{run.path} has neither complete tables nor raw files: nothing is left to read")
    if run.info.state == "running":
        run.info.state = "killed"
    run.tables_path = convert(run)
    return run


def convert(run: Run) -> Path:
    """Make the tables of `run` from its raw files, in its folder or in the cache; returns where they are."""
    session = _session(run)
    if run.info.state == "killed" and not session:
        session = {"problems": [_unfinished()]}
    for folder in (run.path, cached_tables(run.info.run_id)):
        try:
            with _locked(folder):
                convert_into(run.raw, folder, session)
                return folder
        except OSError as error:
            why = error
    raise ReadError(f"the tables of {run.path} cannot be written: {why}. Free some space, or set XDG_CACHE_HOME")


def _session(run: Run) -> dict[str, Any]:
    """What the session left, or those of all ranks."""
    from layerscope.cli._conversion import read_session

    return joined_session(run, _session_lives) if run.is_joined else read_session(run.raw)


def convert_into(raw: Path, folder: Path, session: dict[str, Any]) -> Any:
    """Convert `raw` into `folder`, replacing what an earlier conversion left there."""
    from layerscope.cli._conversion import RunConversion

    remove_tables(folder)
    conversion = RunConversion(raw, folder, session.get("shifts_ns"))
    conversion.finish(session)
    mark_complete(folder, raw, conversion.rows)
    return conversion


def mark_complete(folder: Path, raw: Path, rows: dict[str, int]) -> None:
    """Say by a file, written by rename, that every table in `folder` is whole, and from how much of `raw`."""
    temporary = folder / f"{COMPLETE}.tmp"
    temporary.write_text(json.dumps({"schema": SCHEMA_VERSION, "rows": rows, "raw_bytes": _spool_bytes(raw)}))
    os.replace(temporary, folder / COMPLETE)


def _is_complete(folder: Path, raw: Path) -> bool:
    """Whether `folder` holds whole tables, as they are today, of all that `raw` holds now (a dropped `raw` does not
    count).
    """
    try:
        told = json.loads((folder / COMPLETE).read_text())
        covers = told["raw_bytes"] == _spool_bytes(raw) or not spools(raw)
        return bool(covers and told["schema"] == SCHEMA_VERSION)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _spool_bytes(raw: Path) -> int:
    return sum(path.stat().st_size for path in spools(raw))


def remove_tables(folder: Path) -> None:
    """Remove the tables in `folder`, and nothing else."""
    from layerscope.model.schema import TABLES

    (folder / COMPLETE).unlink(missing_ok=True)
    for table in TABLES:
        shutil.rmtree(folder / table, ignore_errors=True)


def cached_tables(run_id: str) -> Path:
    """Where the tables of a recording go that has no room for them: the user's cache, else a temporary folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME") or "/nonexistent", ".cache")
    if not os.access(base if os.path.isdir(base) else os.path.dirname(base), os.W_OK):
        base = os.path.join(tempfile.gettempdir(), f"layerscope-{os.getuid()}")
    # Of a recording of somebody else's its id is text like any other: it names a folder here and leads nowhere else.
    name = run_id if re.fullmatch(r"[\w-]+", run_id) else _digest(run_id.encode())
    return Path(base) / "layerscope" / "tables" / name


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _open_folder(path: Path) -> Run:
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


def _session_lives(run: Run) -> bool:
    try:
        words = Path(f"/proc/{run.info.session_pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"layerscope" in words and run.info.host.get("name") == os.uname().nodename


def _convert_snapshot(run: Run) -> Run:
    """A recording that still grows: what is there now, in the cache, made anew at each opening."""
    folder = cached_tables(run.info.run_id + "-running")
    with _locked(folder):
        convert_into(run.raw, folder, _session(run) if run.is_joined else {})
    run.tables_path = folder
    return run


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One conversion at a time in `folder`; OSError when it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
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

"""Opens a recording for a command: converts first what was not converted, or only in part.

A recording whose session was killed, that is still running, that was copied without its tables or
whose tables are damaged has its raw files, and those are enough. Where its folder cannot be
written, its tables go to the user's cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from layerscope.host import cgroup
from layerscope.ingest.ranks import joined_info, joined_session
from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.model.layers import OPERATORS
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.rawfile.json_files import read_session
from layerscope.rawfile.raw_file import has_raw_files, raw_bytes
from layerscope.recording.complete import COMPLETE, TablesState, read_state, write_state
from layerscope.recording.packed import is_packed, unpacked
from layerscope.recording.reader import all_files, check_tables
from layerscope.recording.run import Run, RunInfo, refuse_newer


class _Damaged(ReadError):
    """A recording whose tables are damaged and that has no raw files to make them from again."""


def open_run(path: Path) -> Run:
    """The recording at `path`, ready to be read. ReadError in words when it is none or cannot be
    read.
    """
    folder = folder_of(path)
    try:
        return _opened(folder)
    except _Damaged:
        if folder == path:
            raise
        # What a packed recording or another program's file became in the cache is made from it
        # again.
        shutil.rmtree(folder.parent, ignore_errors=True)
        return _opened(folder_of(path))


def _opened(path: Path) -> Run:
    run = open_folder(path)
    _note_where_it_is(run)
    if run.is_joined:
        run.info = joined_info(run, session_lives)
    if run.info.state == "running" and (run.is_joined or session_lives(run) or is_growing(run.raw)):
        return _convert_snapshot(run)
    if run.info.state == "running":
        run.info.state = "killed"
    damage = []
    for folder in (run.path, *cached_tables(run.info.run_id)):
        run.tables_path = folder
        state = _current(folder, run.raw)
        if state is None:
            continue
        try:
            check_tables(run, state)
        except ReadError as error:
            damage.append(str(error))
            continue
        if folder != run.path:
            cache.remember(folder, run.path)
        return run
    if not has_raw_files(run.raw):
        _refuse(run, damage)
    run.tables_path = convert(run, damage)
    return run


def _refuse(run: Run, damage: Sequence[str]) -> NoReturn:
    """Raise the ReadError that says why a recording without raw files cannot be read."""
    if run.raw.is_symlink():
        raise ReadError(
            f"the raw files of {run.path} are still on host {run.info.host.get('name')}: copy "
            f"{run.raw.readlink()} from there in place of the link {run.raw}"
        )
    if damage:
        raise _Damaged(
            f"the tables of {run.path} are damaged ({damage[0]}), and there are no raw files to "
            "make them from again. Copy the recording again from where it was made"
        )
    if _schema_of(run.path) < SCHEMA_VERSION:
        raise ReadError(
            f"{run.path} has the tables of an earlier layerscope ({run.info.layerscope}) and no "
            "raw files to make today's from: read it with that version"
        )
    raise _Damaged(f"{run.path} has neither complete tables nor raw files: nothing is left to read")


def folder_of(path: Path) -> Path:
    """The folder with the recording at `path`, which may be packed or a file of another program."""
    if is_packed(path):
        return unpacked(path)
    if not path.is_file():
        return path
    from layerscope.ingest.foreign import imported

    return imported(path)


def _note_where_it_is(run: Run) -> None:
    """A recording whose raw files lie elsewhere may have been moved: they still belong to it."""
    if run.raw.is_symlink():
        told = cache.origin(run.raw.readlink())
        if told and told.is_here and cache.is_absent(Path(told.path)):
            cache.remember(run.raw.readlink(), run.path)


def convert(run: Run, damage: Sequence[str] = ()) -> Path:
    """Make the tables of `run` from its raw files, in its folder or in the cache; returns where
    they are.

    `damage`: what was wrong with its tables before.
    """
    session = _session(run)
    if run.info.state == "killed" and not session:
        session = {"problems": [unfinished()]}
    if damage:
        session = {**session, "problems": [*session.get("problems", []), _made_again(damage[0])]}
    return _convert_into_first((run.path, *cached_tables(run.info.run_id)), run, session)


def _convert_into_first(folders: Sequence[Path], run: Run, session: dict[str, Any]) -> Path:
    """The first of `folders` that takes the tables of `run`."""
    why = OSError(13, "no place can be written")
    for folder in folders:
        try:
            with _locked(folder):
                convert_into(run.raw, folder, session)
                if folder != run.path:
                    cache.remember(folder, run.path)
                return folder
        except OSError as error:
            why = error
    raise ReadError(
        f"the tables of {run.path} cannot be written: {why}. Free some space, or set XDG_CACHE_HOME"
    )


def _session(run: Run) -> dict[str, Any]:
    """What the session left, or those of all ranks."""
    return joined_session(run, session_lives) if run.is_joined else read_session(run.raw)


def convert_into(raw: Path, folder: Path, session: dict[str, Any]) -> Any:
    """Convert `raw` into `folder`, replacing what an earlier conversion left there."""
    from layerscope.ingest.conversion import conversion_of_raw

    remove_tables(folder)
    memory_bytes = cgroup.facts().memory_most_bytes
    conversion = conversion_of_raw(raw, folder, memory_bytes, session.get("shifts_ns"))
    conversion.finish(session)
    mark_complete(folder, raw, conversion.rows)
    return conversion


def mark_complete(folder: Path, raw: Path, rows: dict[str, int]) -> None:
    """Say that every table in `folder` is whole, and from how much of `raw`."""
    write_state(folder, raw_bytes(raw), rows, all_files(folder))


def _current(folder: Path, raw: Path) -> TablesState | None:
    """What is said of the tables in `folder` if they are whole, as they are today, and of all that
    `raw` holds now (a dropped `raw` does not count).
    """
    state = read_state(folder)
    if state is None or state.schema != SCHEMA_VERSION:
        return None
    return state if state.raw_bytes == raw_bytes(raw) or not has_raw_files(raw) else None


def _schema_of(folder: Path) -> int:
    """The version of the tables in `folder`, if they are whole; else that of today."""
    state = read_state(folder)
    return state.schema if state else SCHEMA_VERSION


def remove_tables(folder: Path) -> None:
    """Remove the tables in `folder`, and nothing else."""
    from layerscope.model.schema import TABLES

    (folder / COMPLETE).unlink(missing_ok=True)
    for table in TABLES:
        shutil.rmtree(folder / table, ignore_errors=True)


def cached_tables(run_id: str) -> list[Path]:
    """Where the tables of a recording go that has no room for them, best first."""
    # Of a recording of somebody else's its id is text like any other: it names a folder here and
    # leads nowhere else.
    name = run_id if re.fullmatch(r"[\w-]+", run_id) else _digest(run_id.encode())
    return [folder / name for folder in cache.caches(cache.TABLES)]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def open_folder(path: Path) -> Run:
    """`Run.open`, and a recording that lost its `run.json` but not its raw files."""
    try:
        return Run.open(path)
    except ReadError:
        with contextlib.suppress(OSError):
            refuse_newer(path, (path / "run.json").read_bytes())
        if not has_raw_files(path / "raw"):
            raise
    info = RunInfo(
        schema=SCHEMA_VERSION,
        layerscope="",
        run_id=f"unknown-{_digest(os.fsencode(path.absolute()))}",
        state="killed",
        command=["(unknown: run.json is damaged)"],
        cwd="",
        environment={},
        host={},
        started_utc="",
    )
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


@contextlib.contextmanager
def growing(raw: Path) -> Iterator[None]:
    """While it is made into tables by a converter, whose session may be killed meanwhile."""
    folder = -1
    with contextlib.suppress(OSError):  # a file system without locks: then only the session says so
        folder = os.open(raw, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if folder >= 0:
            os.close(folder)


def is_growing(raw: Path) -> bool:
    """Whether a converter is at work on `raw`."""
    try:
        folder = os.open(raw, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(folder)
    return False


def _convert_snapshot(run: Run) -> Run:
    """A recording that still grows: what is there now, in the cache, made anew at each opening."""
    session = _session(run) if run.is_joined else {}
    run.tables_path = _convert_into_first(cached_tables(run.info.run_id + "-running"), run, session)
    return run


@contextlib.contextmanager
def as_it_is_now(recording: Path) -> Iterator[Run]:
    """The recording, with tables of its own made of what it holds at this moment while it still
    grows.
    """
    run = Run.open(recording)
    if run.info.state != "running":
        yield open_run(recording)
        return
    folder = Path(tempfile.mkdtemp(prefix="snapshot-", dir=run.raw))
    try:
        convert_into(run.raw, folder, {})
        run.tables_path = folder
        yield run
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One conversion at a time in `folder`; OSError when it cannot be written."""
    if not folder.is_dir():
        cache.make(folder)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _made_again(damage: str) -> dict[str, str]:
    return {
        "layer": OPERATORS,
        "code": "tables_damaged",
        "what": f"the tables of this recording were damaged ({damage}) and were made again from "
        "its raw files",
        "remedy": "nothing to do here; if it happens again, check the disk or how the recording is "
        "copied",
        "lost": "",
    }


def unfinished() -> dict[str, str]:
    """What to say of a recording that ends where the session was killed."""
    return {
        "layer": OPERATORS,
        "code": "session_killed",
        "what": "layerscope itself was killed before the program ended",
        "remedy": "what had been drained by then is here; let layerscope run to the end of the "
        "program",
        "lost": "everything after that moment, and how the program ended",
    }

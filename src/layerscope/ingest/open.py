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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from layerscope.host import cgroup
from layerscope.ingest.join import Problems, join, last_join, made_of
from layerscope.ingest.ranks import joined_info, problems_of_recording
from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.model.layers import OPERATORS
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.rawfile.json_files import read_session
from layerscope.rawfile.raw_file import has_raw_files, raw_bytes
from layerscope.recording import ranks
from layerscope.recording.complete import (
    COMPLETE,
    TablesState,
    check_files,
    read_state,
    write_state,
)
from layerscope.recording.packed import is_packed, unpacked
from layerscope.recording.rank_keys import JOINED
from layerscope.recording.reader import all_files, check_tables
from layerscope.recording.run import SUFFIX, Run, RunInfo, refuse_newer


class _Damaged(ReadError):
    """A recording whose tables are damaged and that has no raw files to make them from again."""


def open_run(path: Path) -> Run:
    """The recording at `path`, ready to be read. ReadError in words when it is none or cannot be
    read.
    """
    folder = folder_of(path)
    _check_name(folder)
    try:
        return _opened(folder, folder != path)
    except _Damaged:
        if folder == path:
            raise
        # What a packed recording or another program's file became in the cache is made from it
        # again.
        shutil.rmtree(folder.parent, ignore_errors=True)
        return _opened(folder_of(path))


def _check_name(folder: Path) -> None:
    """Refuse a name that Arrow and DuckDB could not open: they would call the files damaged."""
    name = os.fsencode(folder)
    try:
        name.decode("utf-8")
    except UnicodeDecodeError as error:
        readable = name.decode("utf-8", "backslashreplace")
        raise ReadError(
            f"the recording {readable} must have a name in UTF-8 to be read. Rename it"
        ) from error


def _opened(path: Path, is_copy: bool = False) -> Run:
    return _opened_ranks(path, is_copy) if open_folder(path).is_joined else open_one(path)


def open_one(path: Path, memory_bytes: int | None = None) -> Run:
    """The recording at `path`, which is not one of several ranks, as `open_run` gives it; a
    conversion may take so much memory, None: whatever there is.
    """
    run = open_folder(path)
    _note_where_it_is(run)
    if is_live(run):
        return _convert_snapshot(run, memory_bytes)
    if run.info.state == "running":
        run.info.state = "killed"
    damage = _find_tables(run)
    if damage is None:
        return run
    if not has_raw_files(run.raw):
        _refuse(run, damage)
    run.tables_path = convert(run, damage, memory_bytes)
    return run


def is_live(run: Run) -> bool:
    """Whether more may come."""
    return run.info.state == "running" and (session_lives(run) or is_growing(run.raw))


def _find_tables(run: Run) -> list[str] | None:
    """Let `run` have the tables that were made of all its raw files: None. Where there are none
    that are whole, what is wrong with those that there are.
    """
    damage = []
    for folder in (run.path, *cached_tables(run.info.run_id)):
        state = _current(folder, run.raw)
        if state is None:
            continue
        run.tables_path = folder
        try:
            check_tables(run, state)
        except ReadError as error:
            damage.append(str(error))
            continue
        if folder != run.path:
            cache.remember(folder, run.path)
        return None
    run.tables_path = run.path
    return damage


def _opened_ranks(path: Path, is_copy: bool) -> Run:
    """The recording of several ranks at `path`: those that have no tables get them, each by a
    process of its own. `is_copy`: one with damaged tables can be copied again.
    """
    from layerscope.ingest import rank_pool

    run = open_folder(path)
    run.info = joined_info(run, session_lives)
    everyone, unread = _ranks_of(run)
    live = {rank for rank, part in everyone.items() if is_live(part)}
    whole, left = dict[int, Run](), dict[int, Path]()
    for rank, part in everyone.items():
        damage = [] if rank in live else _find_tables(part)
        if damage is None:
            whole[rank] = part
        elif has_raw_files(part.raw):
            left[rank] = part.path
        elif damage:
            unread[rank] = damage[0]
    if unread and is_copy:
        raise _Damaged(next(iter(unread.values())))
    for rank, answer in rank_pool.converted(left).items():
        if isinstance(answer, str):
            unread[rank] = answer
        else:
            everyone[rank].tables_path = answer
            whole[rank] = everyone[rank]
    if not whole and unread:
        raise ReadError(f"{run.path} cannot be read: {next(iter(unread.values()))}")
    if not whole:
        _refuse(run, ())
    whole = dict(sorted(whole.items()))
    known = problems_of_recording(run, everyone, whole, unread, session_lives)
    _join(run, whole, known, run.info.run_id + "-running" if live else run.info.run_id)
    return run


def _ranks_of(run: Run) -> tuple[dict[int, Run], dict[int, str]]:
    """The recordings of the ranks in this one, those that lost their `run.json` too, and why others
    are none.
    """
    found, unread = dict[int, Run](), dict[int, str]()
    for rank, folder in ranks.folders(run.path).items():
        try:
            found[rank] = open_folder(folder)
        except ReadError as error:
            unread[rank] = str(error)
    return found, unread


def _join(run: Run, parts: Mapping[int, Run], known: Problems, cached_as: str) -> None:
    """Let `run` have the tables of all `parts`. `cached_as`: what these are called in the cache;
    those of ranks that still run are kept nowhere else.
    """
    cached = cached_tables(cached_as)
    folders = (run.path, *cached) if cached_as == run.info.run_id else tuple(cached)
    made = made_of(parts, known)
    found = next((folder for folder in folders if _is_join(folder, made)), None)
    if found is None:
        before = last_join((run.path, *folders, *cached_tables(run.info.run_id)))

        def write(folder: Path) -> None:
            remove_tables(folder)
            rows = join(folder, parts, known, before)
            files = all_files(folder)
            write_state(folder, 0, rows, files)

        found = _in_first(folders, run, write)
    run.tables_path = found
    state = last_join([found])
    if state is None or {keys.rank for keys in state.ranks} != parts.keys():
        raise ReadError(f"{found / JOINED} tells of other ranks: remove it, it is made again")
    run.joined = [(keys, parts[keys.rank].tables_path) for keys in state.ranks]


def _is_join(folder: Path, made: str) -> bool:
    """Whether `folder` holds what such ranks have together, as it was written."""
    state = last_join([folder])
    files = read_state(folder)
    if state is None or files is None or state.made_of != made:
        return False
    with contextlib.suppress(ReadError):
        check_files(folder, files, all_files(folder))
        return True
    return False


def left_bytes(path: Path) -> int:
    """How much of the raw files of the recording of several ranks at `path` is still to be
    converted when it is opened.
    """
    parts, _ = _ranks_of(Run.open(path))
    return sum(
        raw_bytes(part.raw) for part in parts.values() if is_live(part) or not _has_state(part)
    )


def _has_state(run: Run) -> bool:
    folders = (run.path, *cached_tables(run.info.run_id))
    states = (_current(folder, run.raw) for folder in folders)
    return any(state is not None for state in states)


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
    """The folder with the recording at `path`, which may be packed, a file of another program, or a
    folder with such files.
    """
    if is_packed(path):
        return unpacked(path)
    if path.is_dir():
        return path if _is_ours(path) else _folder_of_traces(path)
    if not path.is_file():
        return path
    from layerscope.ingest.foreign import imported

    return imported(path)


def _is_ours(path: Path) -> bool:
    """Whether a folder is a recording of layerscope, even a damaged one."""
    is_named = path.name.endswith(SUFFIX)
    return is_named or (path / "run.json").exists() or has_raw_files(path / "raw")


def _folder_of_traces(path: Path) -> Path:
    from layerscope.ingest import foreign_folder

    return foreign_folder.imported(path) or path


def _note_where_it_is(run: Run) -> None:
    """A recording whose raw files lie elsewhere may have been moved: they still belong to it."""
    if run.raw.is_symlink():
        told = cache.origin(run.raw.readlink())
        if told and told.is_here and cache.is_absent(Path(told.path)):
            cache.remember(run.raw.readlink(), run.path)


def convert(run: Run, damage: Sequence[str] = (), memory_bytes: int | None = None) -> Path:
    """Make the tables of `run` from its raw files, in its folder or in the cache; returns where
    they are.

    `damage`: what was wrong with its tables before.
    """
    session = read_session(run.raw)
    if run.info.state == "killed" and not session:
        session = {"problems": [unfinished()]}
    if damage:
        session = {**session, "problems": [*session.get("problems", []), _made_again(damage[0])]}
    folders = (run.path, *cached_tables(run.info.run_id))
    return _in_first(folders, run, lambda one: convert_into(run.raw, one, session, memory_bytes))


def _in_first(folders: Sequence[Path], run: Run, write: Callable[[Path], object]) -> Path:
    """The first of `folders` that takes the tables of `run`, which `write` puts there."""
    why = OSError(13, "no place can be written")
    for folder in folders:
        try:
            with _locked(folder):
                write(folder)
                if folder != run.path:
                    cache.remember(folder, run.path)
                return folder
        except OSError as error:
            why = error
    raise ReadError(
        f"the tables of {run.path} cannot be written: {why}. Free some space, or set XDG_CACHE_HOME"
    )


def convert_into(
    raw: Path, folder: Path, session: dict[str, Any], memory_bytes: int | None = None
) -> Any:
    """Convert `raw` into `folder`, replacing what an earlier conversion left there."""
    from layerscope.ingest.conversion import conversion_of_raw

    remove_tables(folder)
    memory_bytes = memory_bytes or cgroup.facts().memory_most_bytes
    conversion = conversion_of_raw(raw, folder, memory_bytes)
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

    for name in (COMPLETE, JOINED):
        (folder / name).unlink(missing_ok=True)
    for table in TABLES:
        shutil.rmtree(folder / table, ignore_errors=True)


def cached_tables(run_id: str) -> list[Path]:
    """Where the tables of a recording go that has no room for them, best first."""
    # Of a recording of somebody else's its id is text like any other: it names a folder here and
    # leads nowhere else.
    is_plain = re.fullmatch(r"[\w-]+", run_id)
    name = run_id if is_plain else _digest(run_id.encode())
    return [folder / name for folder in cache.caches(cache.TABLES)]


def _digest(content: bytes) -> str:
    digest = hashlib.blake2b(content, digest_size=8)
    return digest.hexdigest()


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


def _convert_snapshot(run: Run, memory_bytes: int | None) -> Run:
    """A recording that still grows: what is there now, in the cache, made anew at each opening."""
    folders = cached_tables(run.info.run_id + "-running")
    run.tables_path = _in_first(
        folders, run, lambda folder: convert_into(run.raw, folder, {}, memory_bytes)
    )
    return run


@contextlib.contextmanager
def as_it_is_now(recording: Path) -> Iterator[Run]:
    """The recording, with tables of its own made of what it holds at this moment while it still
    grows.
    """
    run = Run.open(recording)
    if run.info.state != "running" or run.is_joined:
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

"""A folder with traces of other programs as one recording: a file is a rank.

Each file is a recording in the user's cache (`foreign`), made by processes beside each other, and
kept for the next time; the recording of all has links to the files of these. A rank that a trace
tells counts; else the one in the name of its file; else the first that is free.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from layerscope import __version__
from layerscope.ingest import foreign, rank_pool, reading_progress
from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.recording import ranks
from layerscope.recording.complete import read_state, write_state
from layerscope.recording.packed import complete_by_rename
from layerscope.recording.reader import Reader, all_files
from layerscope.recording.run import RANKS, SUFFIX, Run, RunInfo
from layerscope.recording.writer import write_rows

# rank-3.json.gz, trace_rank3.json, rank_3.1074.pt.trace.json
_RANK_IN_NAME = re.compile(r"rank[-_.]?([0-9]{1,6})(?![0-9])", re.IGNORECASE)
_RANK_TOLD = re.compile(r'"rank" *: *"?[0-9]')
# Files that would be traces, if they could be read.
_TRACE_NAME = re.compile(r"\.(json|pb|sqlite|nvvp|data)(\.gz)?$")


def imported(path: Path) -> Path | None:
    """The recording made of the traces in the folder `path`; None when none of its files is one."""
    files = _files(path)
    traces = [file for file in files if foreign.is_known(file)]
    if not traces:
        return None
    key = _key(files)
    name = f"{path.resolve().name}{SUFFIX}"
    return foreign.kept(
        path, key, name, "run.json", lambda base: _make(path, files, traces, base, base / key, name)
    )


def _files(path: Path) -> list[Path]:
    try:
        found = sorted(path.iterdir())
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}") from error
    visible = [file for file in found if not file.name.startswith(".")]
    return [file for file in visible if file.is_file()]


def _key(files: list[Path]) -> str:
    """What tells the folder, as it is now, from all others."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{SCHEMA_VERSION} {__version__}\n".encode())
    for file in files:
        about = file.stat()
        name = os.fsencode(file.resolve())
        line = f"{about.st_size} {about.st_mtime_ns} {name!r}\n"
        digest.update(line.encode())
    return digest.hexdigest()


def _make(
    path: Path, files: list[Path], traces: list[Path], base: Path, folder: Path, name: str
) -> None:
    """Make the recording of `traces` as `folder`/`name`, complete by rename."""
    with reading_progress.told(path, f"reading {len(traces):,} traces of {path.name}"):
        answers = rank_pool.converted(dict(enumerate(traces)))
    whole: dict[Path, Path] = {}
    problems = [_unknown(file) for file in files if file not in traces and _is_meant(file)]
    for number, answer in answers.items():
        if isinstance(answer, str):
            problems.append(_unread(traces[number], answer))
        else:
            whole[traces[number]] = answer
    if not whole:
        raise ReadError(f"no trace in {path} can be read: {problems[-1].what}")
    by_rank = _numbered(whole, problems)
    with complete_by_rename(base, folder) as draft:
        run = Run.create(draft / name, _info(path, next(iter(by_rank.values())), folder.name))
        (run.path / "raw").rmdir()
        for rank, part in by_rank.items():
            _link(part, run.path / RANKS / str(rank))
            _number(run.path / RANKS / str(rank), rank)
        ranks.write_problems(run.path, problems)


def _is_meant(file: Path) -> bool:
    return _TRACE_NAME.search(file.name) is not None


def _numbered(whole: Mapping[Path, Path], problems: list[Problem]) -> dict[int, Path]:
    """The recordings of the files by rank; adds to `problems` those that cannot have theirs."""
    found: dict[int, Path] = {}
    from_file: dict[int, Path] = {}
    unnumbered: list[Path] = []
    for file, folder in whole.items():
        rank = _rank_in(folder)
        rank = _rank_of_name(file) if rank is None else rank
        if rank is None:
            unnumbered.append(file)
        elif rank in found:
            problems.append(_doubled(file, rank, from_file[rank]))
        else:
            found[rank], from_file[rank] = folder, file
    for file in unnumbered:
        rank = next(number for number in range(len(found) + 1) if number not in found)
        found[rank] = whole[file]
        if len(whole) > 1:
            problems.append(_assumed(file, rank))
    return dict(sorted(found.items()))


def _rank_in(folder: Path) -> int | None:
    """The rank that the trace tells."""
    run = Run.open(folder)
    with Reader(run) as reader:
        rows = reader.query("SELECT rank, about FROM processes ORDER BY process").to_pylist()
    for row in rows:
        # One trace alone is of rank 0, whether it says so or not.
        if row["rank"] or (row["rank"] == 0 and _RANK_TOLD.search(row["about"] or "")):
            return int(row["rank"])
    return None


def _rank_of_name(file: Path) -> int | None:
    found = _RANK_IN_NAME.search(file.name)
    if found is None:
        return None
    return int(found[1])


def _link(source: Path, target: Path) -> None:
    """The files of a recording once more: what is removed in one place stays in the other."""
    target.mkdir(parents=True)
    for entry in source.iterdir():
        twin = target / entry.name
        if entry.is_dir():
            _link(entry, twin)
        elif entry.name != cache.ORIGIN:
            os.link(entry, twin)


def _number(folder: Path, rank: int) -> None:
    """Let the processes in `folder`, which has links to files of others, be of this rank."""
    run = Run.open(folder)
    state = read_state(folder)
    assert state is not None  # it was written as a whole
    with Reader(run) as reader:
        rows = reader.query("SELECT * FROM processes").to_pylist()
    if all(row["rank"] == rank for row in rows):
        return
    for row in rows:
        row["rank"] = rank
    shutil.rmtree(folder / "processes")
    write_rows(folder, "processes", rows)
    write_state(folder, state.raw_bytes, state.rows, all_files(folder))


def _info(path: Path, first: Path, key: str) -> RunInfo:
    info = Run.open(first).info
    made = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return RunInfo(
        schema=SCHEMA_VERSION,
        layerscope=__version__,
        run_id=key,
        state="finished",
        command=info.command,
        cwd=str(path.absolute()),
        environment=info.environment,
        host=info.host,
        started_utc=made.isoformat(timespec="seconds"),
        start_ns=info.start_ns,
        versions=info.versions,
        imported_from=path.resolve().name,
    )


def _unknown(file: Path) -> Problem:
    return Problem(
        OPERATORS,
        "trace_unknown",
        f"{file.name} is no trace that can be read",
        "the other files are here; remove it from the folder if it is none",
        "what is in it",
    )


def _unread(file: Path, why: str) -> Problem:
    return Problem(
        OPERATORS,
        "rank_unread",
        f"{file.name} could not be read: {why}",
        "the other ranks are here; copy that file again from where it was made",
        "everything of this rank",
    )


def _doubled(file: Path, rank: int, first: Path) -> Problem:
    return Problem(
        OPERATORS,
        "rank_doubled",
        f"{file.name} and {first.name} both are of rank {rank}; the second is shown",
        "keep the files of different jobs in different folders",
        f"what is in {file.name}",
    )


def _assumed(file: Path, rank: int) -> Problem:
    return Problem(
        OPERATORS,
        "rank_assumed",
        f"neither {file.name} nor its name tells a rank: it is shown as rank {rank}",
        "name the files rank-0.json, rank-1.json and so on",
        "",
    )

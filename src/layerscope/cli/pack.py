"""Put a recording into one file that opens wherever a recording does.

RUN is a folder made by `layerscope run`, with or without its suffix; left out, it is the newest one
here. The file is NAME.layerscope.zip in the working directory, and `layerscope table
NAME.layerscope.zip operators` reads it on any machine. --drop-raw leaves out the raw files, from
which the tables could be made again: the file is a third smaller. The recording itself stays as it
is.

--redact removes what could identify the owner: folders, arguments, values of environment variables,
names of hosts and threads, names of user-defined ranges, arguments of spans, source lines, and the
raw files. Names of operators and modules, times, versions and the name of the program stay.
docs/pack.md has the list.

    layerscope pack train --redact -o question
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.recording.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `pack`."""
    parser.add_argument(
        "recording", metavar="RUN", nargs="?", help="the recording (default: the newest one here)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the file (default: NAME.layerscope.zip)"
    )
    parser.add_argument(
        "--redact", action="store_true", help="remove what could identify the owner"
    )
    parser.add_argument("--drop-raw", action="store_true", help="leave out the raw files")
    parser.add_argument("--force", action="store_true", help="overwrite the file if there is one")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def run(arguments: argparse.Namespace) -> int:
    """Pack the recording that `arguments` ask for."""
    from layerscope.cli._redacted import NAMELESS
    from layerscope.ingest.open import open_run
    from layerscope.model import units
    from layerscope.recording import packed
    from layerscope.recording.run import SUFFIX, find_run

    source = find_run(arguments.recording)
    target = _target(arguments.output, source)
    if target.exists() and not arguments.force:
        raise UsageError(f"{target} exists already. --force overwrites it, -o FILE chooses another")
    recording = open_run(source)
    if recording.info.state == "running":
        raise UsageError(f"{source} is still being recorded. Pack it when the program has ended")
    name = NAMELESS if arguments.redact else recording.name
    with tempfile.TemporaryDirectory(prefix="layerscope-pack-", dir=target.parent) as scratch:
        entries = (
            _redacted(recording, Path(scratch))
            if arguments.redact
            else _whole(recording, not arguments.drop_raw)
        )
        packed.pack(entries, target, name + SUFFIX)
    if not arguments.quiet:
        screen.line(
            f"{target.name}: {units.size(target.stat().st_size)}, "
            f"{_content(entries, arguments.redact)}"
        )
        screen.tell(
            f"Next: layerscope table {shlex.quote(arguments.output or target.name)} operators"
        )
    return 0


def _target(output: str | None, source: Path) -> Path:
    """The file to write; `-o question` means question.layerscope.zip."""
    from layerscope.recording.run import PACKED, SUFFIX

    if output is None:
        stem = source.name.removesuffix(PACKED).removesuffix(SUFFIX)
        return Path.cwd() / f"{stem}{PACKED}"
    path = Path(output)
    name = path.name
    if path.suffix != ".zip":
        name = name.removesuffix(SUFFIX) + PACKED
    if not path.name or path.is_dir():
        raise UsageError(f"-o {output} is a folder. Name a file in it")
    if not path.parent.is_dir():
        raise UsageError(
            f"there is no folder {path.parent}. Make it, or choose another file with -o"
        )
    return path.with_name(name)


def _whole(recording: Run, with_raw: bool) -> dict[str, Path | bytes]:
    """Every file of a recording, its tables from wherever they are; the raw files if they are
    wanted.
    """
    import msgspec

    from layerscope.recording.proofs import PROOFS
    from layerscope.recording.ranks import LAUNCH, parts
    from layerscope.recording.run import RANKS

    entries: dict[str, Path | bytes] = {
        "run.json": msgspec.json.format(msgspec.json.encode(recording.info), indent=1)
    }
    entries.update(_tables(recording.tables_path))
    for name in ("summary.txt", LAUNCH, PROOFS):
        if (recording.path / name).is_file():
            entries[name] = recording.path / name
    for part in parts(recording.path).values() if recording.joined else ():
        entries[f"{RANKS}/{part.path.name}/run.json"] = part.path / "run.json"
    for keys, folder in recording.joined:
        entries.update(
            {f"{RANKS}/{keys.rank}/{name}": file for name, file in _tables(folder).items()}
        )
    if with_raw:
        entries.update(
            {
                file.relative_to(recording.path).as_posix(): file
                for file in _plain_files(recording.raw)
            }
        )
    return entries


def _tables(folder: Path) -> dict[str, Path]:
    """The tables in `folder`, and what says of them that they are whole."""
    from layerscope.recording.complete import COMPLETE
    from layerscope.recording.rank_keys import JOINED
    from layerscope.recording.reader import all_files

    about = [folder / name for name in (COMPLETE, JOINED)]
    files = [file for file in about if file.is_file()]
    files += all_files(folder)
    return {file.relative_to(folder).as_posix(): file for file in files}


def _plain_files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        if (
            file.is_file()
            and not file.is_symlink()
            and file.name != ".lock"
            and file.suffix != ".tmp"
        ):
            yield file


def _redacted(recording: Run, scratch: Path) -> dict[str, Path | bytes]:
    """The files of a recording without what identifies, which are made in `scratch`."""
    import msgspec

    from layerscope.cli._redacted import redacted_in
    from layerscope.model.schema import TABLES
    from layerscope.recording.complete import COMPLETE

    made = redacted_in(recording, scratch)
    entries: dict[str, Path | bytes] = {
        "run.json": msgspec.json.format(msgspec.json.encode(made.info), indent=1)
    }
    entries.update({f"{table}/all.parquet": scratch / table / "all.parquet" for table in TABLES})
    entries[COMPLETE] = scratch / COMPLETE
    return entries


def _content(entries: dict[str, Path | bytes], is_redacted: bool) -> str:
    raw = any(name.startswith("raw/") or "/raw/" in name for name in entries)
    if is_redacted:
        return "the tables without names, paths and arguments"
    return "the tables and the raw files" if raw else "the tables without the raw files"

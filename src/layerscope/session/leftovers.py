"""What layerscope left behind outside of recordings and nobody needs any more. Used by `clean`.

Only what has our name or our note, belongs to this user and is no link; what could not be made
again, or may still be in use, stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from layerscope.analyse.timeline.kept import DRAFT
from layerscope.ingest.open import session_lives
from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.model.stored_json import PathText, decoded
from layerscope.rawfile.raw_file import has_raw_files
from layerscope.recording.complete import COMPLETE
from layerscope.recording.run import Run


class _KeptAnswer(msgspec.Struct):
    library: PathText


# A cache that nobody has opened for so long is made again when somebody does.
UNUSED_DAYS = 30
_DAY_S = 86_400.0
# What a process that has ended left half made, and what another one may be making right now.
_DRAFT_S = 3_600.0
_SPILL = re.compile(r"layerscope-spill-(\d+)-[0-9a-f]{8}")
_RAW = re.compile(r"layerscope-[0-9a-f]{16}")
_UNPACKED = re.compile(r"[0-9a-f]{32}")
_RUNNING = "-running"


class Leftover(Struct, frozen=True):
    """One thing that can go: a file or a folder. `why` says why; a reason of `kept` why it
    stays.
    """

    what: str
    path: Path
    why: str
    kept: str = ""


def find(everything: bool = False) -> Iterator[Leftover]:
    """What can go, and what looks like it but stays. `everything`: caches that were used lately
    too.
    """
    least_s = 0.0 if everything else UNUSED_DAYS * _DAY_S
    yield from _spills()
    yield from _raw_folders(0.0 if everything else _DAY_S)
    yield from _tables(least_s)
    yield from _unpacked(least_s)
    yield from _answers(least_s)
    yield from _compiled(least_s)
    yield from _symbols(least_s)
    yield from _measured(least_s)
    yield from _timelines(least_s)


def remove(path: Path) -> None:
    """Remove a file or a folder of ours; links in it are removed, not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def size_bytes(path: Path) -> int:
    """What removing it gives back."""
    total = path.lstat().st_size
    if path.is_dir() and not path.is_symlink():
        for folder, _, files in os.walk(path):
            with contextlib.suppress(OSError):  # somebody else removes it too
                total += sum(os.lstat(os.path.join(folder, file)).st_size for file in files)
    return total


def raw_folder_of(run: Run) -> Path | None:
    """Where the raw files of a recording lie if not in it: a folder with our note of this
    recording.
    """
    if not run.raw.is_symlink():
        return None
    place = run.raw.readlink()
    owner = cache.origin(place)
    return (
        place
        if owner and Path(owner.path) == run.path.absolute() and cache.is_ours(place)
        else None
    )


def notes_of(run_id: str) -> Iterator[Path]:
    """What says where the raw files of a recording lie."""
    for base in cache.caches(cache.SPOOLS):
        note = base / run_id
        if cache.is_ours(note):
            yield note


def tables_of(run_id: str) -> Iterator[Path]:
    """The tables of a recording in the caches."""
    for base in cache.caches(cache.TABLES):
        for name in (run_id, run_id + _RUNNING):
            if cache.is_ours(base / name) and cache.origin(base / name):
                yield base / name


def timelines_of(run_id: str) -> Iterator[Path]:
    """The columns of the timeline of a recording in the caches."""
    for base in cache.caches(cache.TIMELINES):
        for folder in _ours(base):
            if folder.name.startswith(f"{run_id}-") and cache.origin(folder):
                yield folder


def _spills() -> Iterator[Leftover]:
    """What questions put on disk that did not fit into memory, and whose process was killed."""
    for folder in _ours(Path(tempfile.gettempdir())):
        found = _SPILL.fullmatch(folder.name)
        if found and not Path(f"/proc/{found[1]}").exists() and _age_s(folder) > _DRAFT_S:
            yield Leftover("temporary files", folder, "the question they belong to was killed")


def _raw_folders(least_s: float) -> Iterator[Leftover]:
    """Raw files outside of their recording: in a temporary folder, or where --spool put them."""
    found = {folder for folder in _ours(Path(tempfile.gettempdir())) if _RAW.fullmatch(folder.name)}
    for base in cache.caches(cache.SPOOLS):
        for note in _ours(base):
            owner = cache.origin(note)
            if owner is None or not owner.is_here:
                continue
            place = Path(owner.path)
            if _RAW.fullmatch(place.name) and cache.is_ours(place):
                found.add(place)
            elif cache.is_absent(place):
                yield Leftover("note", note, f"{place} is gone")
    opened = _opened_folders() if found else set()
    for folder in sorted(found):
        owner = cache.origin(folder)
        if owner is not None and not any(folder == one or folder in one.parents for one in opened):
            yield from _raw_folder(folder, owner, least_s)


def _raw_folder(folder: Path, owner: cache.Origin, least_s: float) -> Iterator[Leftover]:
    what = "raw files"
    recording = Path(owner.path)
    raw = recording / "raw"
    if not owner.is_here:
        yield Leftover(what, folder, "", f"its recording {recording} is on host {owner.host}")
    elif not recording.parent.is_dir():
        yield Leftover(
            what,
            folder,
            "",
            f"the folder of its recording {recording} is not there; is it mounted?",
        )
    elif cache.is_absent(recording) and _unused_s(owner.used_s) < least_s:
        moved = "if it was moved, open it where it is now, else --all removes them"
        yield Leftover(
            what, folder, "", f"the recording {recording} is gone since less than a day; {moved}"
        )
    elif cache.is_absent(recording):
        yield Leftover(what, folder, f"the recording {recording} is gone")
    elif _is_live(recording):
        return
    elif raw.is_symlink() and raw.readlink() == folder:
        yield Leftover(what, folder, "", f"the recording {recording} has no others")
    elif has_raw_files(raw):
        yield Leftover(what, folder, f"the recording {recording} has its own")
    else:
        yield Leftover(what, folder, "", f"the recording {recording} has lost its own")


def _tables(least_s: float) -> Iterator[Leftover]:
    """Tables of recordings that could not be written."""
    for base in cache.caches(cache.TABLES):
        for folder in _ours(base):
            owner = cache.origin(folder)
            if owner is None or _is_locked(folder):
                continue
            recording = Path(owner.path)
            if owner.is_here and recording.parent.is_dir() and cache.is_absent(recording):
                yield Leftover("tables", folder, f"the recording {recording} is gone")
            elif folder.name.endswith(_RUNNING) and owner.is_here and not _is_live(recording):
                yield Leftover(
                    "tables", folder, f"the recording {recording} is not running any more"
                )
            elif _unused_s(owner.used_s) >= least_s and not _is_live(recording):
                if (
                    has_raw_files(recording / "raw")
                    or has_raw_files(recording / "ranks")
                    or (recording / COMPLETE).exists()
                ):
                    yield Leftover("tables", folder, _unused(owner.used_s))
                else:
                    yield Leftover(
                        "tables",
                        folder,
                        "",
                        f"the recording {recording} has nothing to make them of again",
                    )


def _unpacked(least_s: float) -> Iterator[Leftover]:
    """Recordings that were unpacked to be read."""
    for base in cache.caches(cache.PACKED):
        for folder in _ours(base):
            if folder.name.startswith(".unpacking-") and _age_s(folder) > _DRAFT_S:
                yield Leftover("unpacked", folder, "it was never completed")
            if not _UNPACKED.fullmatch(folder.name):
                continue
            owner = cache.origin(folder)
            used_s = owner.used_s if owner else _mtime_s(folder)
            if owner and owner.is_here and cache.is_absent(Path(owner.path)):
                yield Leftover("unpacked", folder, f"{owner.path} is gone")
            elif _unused_s(used_s) >= least_s:
                yield Leftover("unpacked", folder, _unused(used_s))


def _answers(least_s: float) -> Iterator[Leftover]:
    """What the probe found out about builds of frameworks."""
    for base in cache.caches(cache.PROBE):
        for file in _entries(base):
            try:
                library = decoded(file.read_bytes(), _KeptAnswer).library
            except (OSError, ValueError):
                if _age_s(file) > _DRAFT_S and file.suffix in (".tmp", ".json"):
                    yield Leftover("probe answer", file, "it is damaged, or of an older layerscope")
                continue
            if cache.is_absent(Path(library)):
                yield Leftover("probe answer", file, f"{library} is gone")
            elif _age_s(file) >= least_s:
                yield Leftover("probe answer", file, _unused(_mtime_s(file)))


def _compiled(least_s: float) -> Iterator[Leftover]:
    """Code that was compiled for a build of a framework."""
    for base in cache.caches(cache.SHAPES):
        for folder in _ours(base):
            owner = cache.origin(folder)
            if owner and owner.is_here and cache.is_absent(Path(owner.path)):
                yield Leftover("compiled code", folder, f"{owner.path} is gone")
            elif _unused_s(owner.used_s if owner else _mtime_s(folder)) >= least_s:
                yield Leftover(
                    "compiled code", folder, _unused(owner.used_s if owner else _mtime_s(folder))
                )


def _symbols(least_s: float) -> Iterator[Leftover]:
    """Sorted symbols of libraries; a table is touched whenever it is used."""
    for base in cache.caches(cache.SYMBOLS):
        for file in _entries(base):
            if file.suffix == ".tmp" and _age_s(file) > _DRAFT_S:
                yield Leftover("symbols", file, "it was never completed")
            elif file.suffix == ".npy" and _age_s(file) >= least_s:
                yield Leftover("symbols", file, _unused(_mtime_s(file)))


def _measured(least_s: float) -> Iterator[Leftover]:
    """What machines like this one reached with the libraries of a Python, and what was proven of
    programs.
    """
    for kind, base in _kept_results():
        for file in _entries(base):
            if file.suffix == ".tmp" and _age_s(file) > _DRAFT_S:
                yield Leftover(kind, file, "it was never completed")
            elif file.suffix == ".json" and _age_s(file) >= least_s:
                days = int(_age_s(file) // _DAY_S)
                yield Leftover(kind, file, f"it is {days} {'day' if days == 1 else 'days'} old")


def _kept_results() -> Iterator[tuple[str, Path]]:
    """The folders of what was measured, and what is said of their files."""
    measured = cache.caches(cache.PLATFORM)
    for base in measured:
        yield "measured", base
    proofs = cache.caches(cache.PROOFS)
    for base in proofs:
        yield "proofs", base


def _timelines(least_s: float) -> Iterator[Leftover]:
    """Columns of the timelines of large recordings."""
    for base in cache.caches(cache.TIMELINES):
        for folder in _ours(base):
            if folder.name.startswith(DRAFT):
                if _age_s(folder) > _DRAFT_S:
                    yield Leftover("timeline", folder, "it was never completed")
                continue
            owner = cache.origin(folder)
            if owner is None:
                continue
            if owner.is_here and cache.is_absent(Path(owner.path)):
                yield Leftover("timeline", folder, f"the recording {owner.path} is gone")
            elif _unused_s(owner.used_s) >= least_s:
                yield Leftover("timeline", folder, _unused(owner.used_s))


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder and belongs to us, no links."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    mine = []
    for entry in found:
        with contextlib.suppress(OSError):  # gone meanwhile
            about = entry.lstat()
            if about.st_uid == os.getuid() and not stat.S_ISLNK(about.st_mode):
                mine.append(entry)
    return mine


def _ours(folder: Path) -> list[Path]:
    entries = _entries(folder)
    return [entry for entry in entries if entry.is_dir()]


def _mtime_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:  # gone meanwhile
        return time.time()


def _age_s(path: Path) -> float:
    return time.time() - _mtime_s(path)


def _unused_s(used_s: float) -> float:
    return time.time() - used_s


def _unused(used_s: float) -> str:
    days = int(_unused_s(used_s) // _DAY_S)
    return f"not used for {days} {'day' if days == 1 else 'days'}; it is made again when needed"


def _is_live(recording: Path) -> bool:
    """Whether the recording is being made right now."""
    with contextlib.suppress(ReadError):
        run = Run.open(recording)
        return run.info.state == "running" and session_lives(run)
    return False


def _is_locked(folder: Path) -> bool:
    """Whether somebody converts into it."""
    try:
        with (folder / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _opened_folders() -> set[Path]:
    """The folders of all files that processes of ours have open: a recording may have been renamed
    while it runs.
    """
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for number in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found.add(Path(os.readlink(number)).parent)
    return found

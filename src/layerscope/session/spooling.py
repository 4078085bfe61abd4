"""Raw files on a disk of this machine while the program runs, and back in the recording at its end.

Meanwhile the recording's `raw` is a link to them. Where the recording lies on a network or FUSE
file system this happens by itself: a server that keeps the drainer waiting would cost records.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path

from layerscope.host import filesystems
from layerscope.model import cache
from layerscope.model.errors import RunError
from layerscope.recording.run import Run


def divert(recording: Run, folder: str | None) -> None:
    """Let `raw` lie in `folder`; without one, in a temporary folder if the recording's own place is
    remote.
    """
    base = Path(folder).absolute() if folder else _local_folder(recording.path)
    if base is None:
        return
    place = base / f"layerscope-{recording.info.run_id}"
    try:
        place.mkdir(parents=True, mode=0o700)
        cache.remember(place, recording.path)
        recording.raw.rmdir()
        os.symlink(place, recording.raw)
    except OSError as error:
        shutil.rmtree(place, ignore_errors=True)
        recording.raw.mkdir(exist_ok=True)
        if folder:
            raise RunError(
                f"the raw files cannot lie in {folder}: {error.strerror}. Choose another --spool"
            ) from error
        return
    note_place(recording.info.run_id, place)


def note_place(run_id: str, place: Path) -> None:
    """Let `layerscope clean` find `place` when nobody takes it home: it may be anywhere."""
    for folder in cache.caches(cache.SPOOLS)[:1]:
        with contextlib.suppress(OSError):
            cache.make(folder / run_id)
            cache.remember(folder / run_id, place)


def noted_place(run_id: str) -> Path | None:
    """Where the raw files of a recording were put, as far as that was noted."""
    for folder in cache.caches(cache.SPOOLS):
        note = cache.origin(folder / run_id)
        if note is not None:
            return Path(note.path)
    return None


def forget_place(run_id: str) -> None:
    """The raw files are not in another place any more."""
    for folder in cache.caches(cache.SPOOLS):
        shutil.rmtree(folder / run_id, ignore_errors=True)


def _local_folder(recording: Path) -> Path | None:
    """A temporary folder on this machine for a recording that is elsewhere; None: it is here, or so
    is nothing.
    """
    if not filesystems.is_remote(recording):
        return None
    local = Path(tempfile.gettempdir())
    return None if filesystems.is_remote(local) else local


def bring_home(recording: Run) -> str:
    """Copy the raw files into the recording, and remove them from their place; empty, or why they
    stay there.
    """
    raw = recording.raw
    try:
        place = raw.readlink()
    except OSError as error:
        kept = noted_place(recording.info.run_id)
        if (
            error.errno in (errno.EINVAL, errno.ENOENT) or kept is None
        ):  # they are at home, or removed
            return ""
        return (
            f"the raw files stay in {kept}: {recording.path} cannot be reached ({error.strerror})"
        )
    draft = raw.with_name("raw.tmp")
    try:
        shutil.copytree(place, draft, ignore=shutil.ignore_patterns(cache.ORIGIN))
        raw.unlink()
        draft.rename(raw)
    except OSError as error:  # shutil.Error is one, and holds a list
        shutil.rmtree(draft, ignore_errors=True)
        if not raw.is_symlink():
            with contextlib.suppress(OSError):
                os.symlink(place, raw)
        return (
            f"the raw files stay in {place}: they could not be copied to {raw} "
            f"({error.strerror or 'disk full'})"
        )
    shutil.rmtree(place, ignore_errors=True)
    forget_place(recording.info.run_id)
    return ""


def let_go(recording: Run) -> None:
    """The program never started: remove what lies outside of the recording."""
    if recording.raw.is_symlink():
        shutil.rmtree(recording.raw.readlink(), ignore_errors=True)
        forget_place(recording.info.run_id)

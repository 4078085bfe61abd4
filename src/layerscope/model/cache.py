"""Where layerscope keeps what is not a recording: the user's cache, else a temporary folder of
their own.

    CACHE/layerscope/KIND          CACHE is $XDG_CACHE_HOME, else ~/.cache
    TMPDIR/layerscope-UID/KIND     where there is no cache that can be written

All of it can be made again, and `layerscope clean` removes it. A folder that somebody else may
write into is never used: what lies there is read and run as ours. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

# What is kept: answers about builds of frameworks, tables of recordings that cannot be written,
# unpacked recordings, code compiled for one of them, notes about raw files that lie outside of
# their recording, names of addresses, what `layerscope platform --measure` found out, what was
# proven of programs, and columns of large timelines.
PROBE, TABLES, PACKED, SHAPES, SPOOLS, SYMBOLS = (
    "probe",
    "tables",
    "packed",
    "shapes",
    "spools",
    "symbols",
)
PLATFORM, PROOFS, TIMELINES = "platform", "proofs", "timelines"
KINDS = (PROBE, TABLES, PACKED, SHAPES, SPOOLS, SYMBOLS, PLATFORM, PROOFS, TIMELINES)
# In a folder of the cache, and in one with raw files outside of their recording: what it was made
# from.
ORIGIN = ".origin"


class Origin(Struct, frozen=True):
    """What a kept folder was made from: a path on a host. `used_s` is when it was last used (Unix
    time).
    """

    path: str
    host: str
    used_s: float = 0.0

    @property
    def is_here(self) -> bool:
        """Whether the path is one of this machine; a home may be shared by several."""
        return self.host == os.uname().nodename


def bases() -> list[Path]:
    """The folders that hold all kinds, best first, without those that others may write into. None
    need exist.
    """
    found = [_temporary_base()]
    cache = _cache_of_user()
    # A home that does not exist is not ours to make.
    nearest = os.path.dirname(cache) if is_absent(Path(cache)) else cache
    if cache and os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK):
        found.insert(0, Path(cache) / "layerscope")
    return [base for base in found if is_absent(base) or is_ours(base)]


def is_temporary(folder: Path) -> bool:
    """Whether a folder for a kind lies in the temporary folder, for want of a cache."""
    return folder.parent == _temporary_base()


def _cache_of_user() -> str:
    """By the XDG Base Directory Specification; empty where the environment names none."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        return cache
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        return ""
    return os.path.join(home, ".cache")


def caches(kind: str) -> list[Path]:
    """The folders for what is kept of `kind` (one of KINDS), best first. None need exist: see
    `make`.
    """
    return [folder for base in bases() if is_absent(folder := base / kind) or is_ours(folder)]


def make(folder: Path) -> None:
    """Make `folder`, one of `caches` or below one, for us alone; OSError when it cannot be made or
    is not ours.
    """
    missing = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    if not (is_ours(folder) and is_ours(folder.parent)):
        raise PermissionError(13, "it belongs to another user", str(folder))


def temporary() -> Path:
    """A folder among the temporary ones that nobody else can look into, for recordings that have no
    other place.
    """
    folder = _temporary_base()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_ours(folder) and not folder.stat().st_mode & 0o077:
            return folder
    # Somebody else has put something of this name there.
    return Path(tempfile.mkdtemp(prefix="layerscope-"))


def settle_temporary() -> None:
    """Take shared memory for temporary files where no folder for them can be written: a container's
    root may be read-only. Python would take the working folder, which is the user's.
    """
    with contextlib.suppress(FileNotFoundError):
        found = tempfile.gettempdir()
        try:
            here = os.getcwd()
        except OSError:  # it was removed
            return
        named = [os.environ.get(variable) for variable in ("TMPDIR", "TEMP", "TMP")]
        if found != here or found in map(
            os.path.abspath, filter(None, [*named, "/tmp", "/var/tmp", "/usr/tmp"])
        ):
            return
    tempfile.tempdir = "/dev/shm"


def is_ours(folder: Path) -> bool:
    """Whether it is a folder (no link) where nobody else may put files."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o002


def is_absent(folder: Path) -> bool:
    """Whether there is nothing of this name, not even a link."""
    return not os.path.lexists(folder)


def remember(folder: Path, origin: Path) -> None:
    """Note in `folder` what it is made from and that it was used just now; without the note it is
    never removed.
    """
    path = str(origin.absolute())
    host = os.uname().nodename
    note = Origin(path, host, time.time())
    text = json.dumps(asdict(note))
    with contextlib.suppress(OSError, UnicodeEncodeError):
        (folder / ORIGIN).write_text(text)


def origin(folder: Path) -> Origin | None:
    """What `remember` noted in `folder`; None when nothing readable is there."""
    from layerscope.model.stored_json import decoded

    try:
        found = decoded((folder / ORIGIN).read_bytes(), Origin)
    except (OSError, ValueError):
        return None
    return found if "\0" not in found.path else None


def _temporary_base() -> Path:
    folder = Path(tempfile.gettempdir())
    user = os.getuid()
    return folder / f"layerscope-{user}"

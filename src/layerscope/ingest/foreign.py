"""A file of another program as a recording in the user's cache, so that every command takes it like
one.

The folder is keyed by where the file lies, its size and when it was changed: it is made again when
one of them changes. The file itself is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope import __version__, sources
from layerscope.ingest import reading_progress
from layerscope.ingest.heap import give_back, trim
from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.model.secrets import mask
from layerscope.recording.complete import COMPLETE, write_state
from layerscope.recording.packed import complete_by_rename
from layerscope.recording.reader import all_files
from layerscope.recording.run import SUFFIX, Run, RunInfo
from layerscope.sources import refused

if TYPE_CHECKING:
    from layerscope.sources.imported import Imported

# What a format may look at to recognise a file: other output may come first.
_HEAD_BYTES = 1 << 20
# For the spans that are looked at in one go. All of a file are in memory already.
_MEMORY_BYTES = 240 << 20


def imported(path: Path) -> Path:
    """The folder of the recording made of the file `path`. ReadError when no format of ours is
    known of it.
    """
    try:
        about = path.stat()
        head = beginning(path)
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}") from error
    format_ = sources.format_of(head)
    if format_ is None:
        refusal = refused.sentence(head, path.name)
        if refusal:
            raise ReadError(f"{path} {refusal}")
        readable = ", ".join(one.MEANING for one in sources.known())
        raise ReadError(f"{path} is no recording, nor a file that can be read as one: {readable}")
    words = (
        os.fsencode(path.resolve()),
        about.st_size,
        about.st_mtime_ns,
        SCHEMA_VERSION,
        __version__,
        *_beside(format_, path),
    )
    key = hashlib.blake2b(repr(words).encode(), digest_size=16).hexdigest()
    name = f"{path.name}{SUFFIX}"
    return kept(
        path, key, name, COMPLETE, lambda base: _make(path, format_, base, base / key, name)
    )


def kept(path: Path, key: str, name: str, whole: str, make: Callable[[Path], None]) -> Path:
    """The recording `name` made of `path`, in the folder `key` of the first cache that takes it;
    `make` puts it there where it has no file `whole`. ReadError when no cache does.
    """
    why: OSError = PermissionError(13, "no place can be written")
    for base in cache.caches(cache.PACKED):
        folder = base / key
        try:
            cache.make(base)
            if not (folder / name / whole).exists():
                make(base)
            cache.remember(folder, path)
        except OSError as error:
            why = error
            continue
        return folder / name
    raise ReadError(
        f"{path} cannot be imported: {why.strerror or why}. Free some space, or set XDG_CACHE_HOME"
    )


def is_known(path: Path) -> bool:
    """Whether the file `path` is of a format that can be read."""
    try:
        head = beginning(path)
    except OSError:
        return False
    return sources.format_of(head) is not None


def beginning(path: Path) -> bytes:
    """How a file begins, unpacked."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"\x1f\x8b"):
        unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        with contextlib.suppress(zlib.error):
            return unpacking.decompress(head, _HEAD_BYTES)
    return head


def _make(path: Path, format_: sources.SourceFormat, base: Path, folder: Path, name: str) -> None:
    """Make the recording of `path` as `folder`/`name`, complete by rename."""
    # Not asked for where the recording is there already.
    from layerscope.ingest.conversion import RunConversion
    from layerscope.sources.foreign import ForeignFile

    with reading_progress.told(path), complete_by_rename(base, folder) as draft:
        content = format_.read(path)
        source = ForeignFile(content)
        trim()
        run = Run.create(draft / name, _info(path, content, source.start_ns, folder.name))
        conversion = RunConversion(source, run.path, _MEMORY_BYTES)
        conversion.finish({})
        write_state(run.path, 0, conversion.rows, all_files(run.path))
    del conversion, source, content
    give_back()


def _beside(format_: sources.SourceFormat, path: Path) -> list[tuple[bytes, int]]:
    """Files that are read with the file `path`, and when they were changed."""
    beside = getattr(format_, "beside", None)
    found = beside(path) if beside is not None else []
    return [(os.fsencode(one), one.stat().st_mtime_ns) for one in found]


def _info(path: Path, content: Imported, start_ns: int, key: str) -> RunInfo:
    began_s = path.stat().st_mtime if content.realtime_ns is None else content.realtime_ns / 1e9
    return RunInfo(
        schema=SCHEMA_VERSION,
        layerscope=__version__,
        run_id=key,
        state="finished",
        command=mask(content.command) or [path.name],
        cwd=str(path.absolute().parent),
        environment=content.environment,
        host={"name": content.host} if content.host else {},
        started_utc=datetime.fromtimestamp(began_s, UTC).isoformat(timespec="seconds"),
        start_ns=start_ns,
        versions=content.versions,
        imported_from=path.name,
    )

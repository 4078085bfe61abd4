"""One recording in one file: a zip archive with stored entries (Parquet is compressed already), and
its way back.

    train.layerscope.zip: train.layerscope/run.json, train.layerscope/spans/all.parquet, ...

The same content gives the same bytes. What comes from somebody else is taken apart with care: only
plain files below one folder, no larger than such an archive can be made of, and all or nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.recording.run import PACKED, SUFFIX

# Nobody learns from the archive when it was made or by whom.
_WHEN = (1980, 1, 1, 0, 0, 0)
_PLAIN_FILE = (stat.S_IFREG | 0o644) << 16
_COPY_BYTES = 1 << 20
# An archive that somebody packed again with compression is larger when unpacked, but not by more
# than this.
_MOST_GROWTH = 50
_MOST_ENTRIES = 200_000
_REFUSED = re.compile(r"(^/)|(^|/)\.\.?(/|$)|//|[\\\0]")
_LONGEST_NAME, _LONGEST_PATH = 255, 2_000
_REMEDY = "Nothing was unpacked. Ask for the file again, or for the folder it was made of"


def pack(entries: Mapping[str, Path | bytes], target: Path, folder: str) -> None:
    """Write `entries` (path in the recording -> file or content) below `folder` to `target`,
    complete by rename.
    """
    with _temporary_beside(target) as temporary:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(entries, key=lambda name: (name != "run.json", name)):
                _add(archive, f"{folder}/{name}", entries[name])
        os.replace(temporary, target)


def _add(archive: zipfile.ZipFile, name: str, content: Path | bytes) -> None:
    about = zipfile.ZipInfo(name, _WHEN)
    about.create_system = 3  # Unix, whatever system this is
    about.external_attr = _PLAIN_FILE
    if isinstance(content, bytes):
        archive.writestr(about, content)
        return
    with content.open("rb") as source, archive.open(about, "w", force_zip64=True) as entry:
        shutil.copyfileobj(source, entry, _COPY_BYTES)


@contextlib.contextmanager
def _temporary_beside(target: Path) -> Iterator[Path]:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def is_packed(path: Path) -> bool:
    """Whether `path` is a file that claims to be, or is, a zip archive."""
    if not path.is_file():
        return False
    if path.name.endswith(PACKED):
        return True
    return zipfile.is_zipfile(path)


def unpacked(path: Path) -> Path:
    """The folder with the recording of the archive `path`, in the user's cache, where it is
    unpacked once.

    ReadError in words when the archive is damaged, is no recording, or holds what no recording has.
    """
    try:
        with path.open("rb") as file:
            key = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
        with zipfile.ZipFile(path) as archive:
            top, members = _checked(path, archive)
            return _in_cache(path, archive, members, key, top)
    except _DAMAGE as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise ReadError(f"{path} is damaged or cut off ({reason}). {_REMEDY}") from error
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}. {_REMEDY}") from error


def check(path: Path) -> None:
    """ReadError unless `path` is a packed recording, as far as its list of files says."""
    try:
        with zipfile.ZipFile(path) as archive:
            _checked(path, archive)
    except _DAMAGE as error:
        raise ReadError(f"{path} is damaged or cut off. {_REMEDY}") from error


# What zipfile raises for a file that is not whole, not zip, or of a kind it does not know.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
    ValueError,
)


def _checked(path: Path, archive: zipfile.ZipFile) -> tuple[str, list[zipfile.ZipInfo]]:
    """The folder that everything is in, and its files; ReadError when anything is not as we pack
    it.
    """
    members = [member for member in archive.infolist() if not member.is_dir()]
    tops = [
        top for top, _, name in (m.filename.partition("/") for m in members) if name == "run.json"
    ]
    top = tops[0] if tops else ""
    if len(set(tops)) != 1 or not top.endswith(SUFFIX):
        raise ReadError(
            f"{path} is not a packed recording: layerscope pack makes one of a recording"
        )
    names = {member.filename for member in members}
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    wrong = [
        member.filename
        for member in members
        if not _is_plain(member) or not _is_name(member.filename, top) or member.filename in folders
    ]
    if wrong or len(names) != len(members) or len(members) > _MOST_ENTRIES:
        what = f"an entry {wrong[0]!r}" if wrong else "entries"
        raise ReadError(f"{path} holds {what} that no packed recording has. {_REMEDY}")
    size_bytes = sum(member.file_size for member in members)
    if size_bytes > _MOST_GROWTH * path.stat().st_size:
        raise ReadError(
            f"{path} would grow to {size_bytes:,} bytes, more than any recording. {_REMEDY}"
        )
    return top, members


def _is_name(name: str, top: str) -> bool:
    """Whether `name` leads to a file below `top`, and every file system takes it."""
    if not name.startswith(f"{top}/") or _REFUSED.search(name):
        return False
    sizes = []
    for part in name.split("/"):
        encoded = part.encode(errors="surrogatepass")
        sizes.append(len(encoded))
    return max(sizes) <= _LONGEST_NAME and sum(sizes) <= _LONGEST_PATH


def _is_plain(member: zipfile.ZipInfo) -> bool:
    """A plain file that is not encrypted. Archives of other systems say nothing of the kind of a
    file.
    """
    kind = stat.S_IFMT(member.external_attr >> 16)
    return kind in (0, stat.S_IFREG) and not member.flag_bits & 1


def _in_cache(
    path: Path, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], key: str, top: str
) -> Path:
    """The unpacked folder in the first cache that can be written."""
    size_bytes = sum(member.file_size for member in members)
    why: OSError | None = None
    for base in cache.caches(cache.PACKED):
        folder = base / key
        try:
            cache.make(base)
            if all((folder / member.filename).exists() for member in members):
                cache.remember(folder, path)
                return folder / top
            free_bytes = shutil.disk_usage(base).free
            if size_bytes > free_bytes:
                why = OSError(f"it needs {size_bytes:,} bytes and {free_bytes:,} are free")
                continue
            _extract(archive, members, base, folder)
            cache.remember(folder, path)
        except OSError as error:
            why = error
            continue
        return folder / top
    reason = (why.strerror or why) if why else "it belongs to another user"
    raise ReadError(
        f"{path} cannot be unpacked into your cache or {tempfile.gettempdir()}: {reason}. Free "
        "some space, set "
        "XDG_CACHE_HOME to a folder that can be written, or unzip it and open the folder"
    )


def _extract(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], base: Path, folder: Path
) -> None:
    """Unpack everything."""
    with complete_by_rename(base, folder) as draft:
        for member in members:
            target = draft / member.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as entry, target.open("xb") as file:
                shutil.copyfileobj(entry, file, _COPY_BYTES)


@contextlib.contextmanager
def complete_by_rename(base: Path, folder: Path) -> Iterator[Path]:
    """A draft in `base` that becomes `folder`: nobody finds half a recording, and of several at
    once all succeed. What another process has put there, and may be read already, stays.
    """
    draft = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=base))
    try:
        yield draft
        try:
            os.rename(draft, folder)
        except OSError:
            if not folder.is_dir():
                raise
            if not _holds(folder, draft):
                _replace(folder, draft)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _holds(folder: Path, draft: Path) -> bool:
    """Whether `folder` has every file of `draft`: what lies in a temporary folder for long loses
    some.
    """
    files = (file for file in draft.rglob("*") if file.is_symlink() or file.is_file())
    return all(os.path.lexists(folder / file.relative_to(draft)) for file in files)


def _replace(folder: Path, draft: Path) -> None:
    """Put `draft` in the place of `folder`."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as aside:
        os.rename(folder, Path(aside) / folder.name)
        os.rename(draft, folder)

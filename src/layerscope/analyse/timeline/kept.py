"""Where the columns of a recording are kept: in the user's cache under the identity of its tables,
else in a temporary folder that goes as soon as they are mapped into memory.

They are made by a process of its own, so that what that takes is given back. Who makes them holds a
lock on their folder meanwhile: of one that was killed the next one removes what is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.recording.run import Run

# Written into the name of the folder: columns of another version are not read.
FORMAT = 2
# How the process that makes them says that it could not write.
CANNOT_WRITE = 3
# Written last: with it the columns are whole.
ABOUT = "about.json"
# Columns of other recordings that were used longest ago go when all take more.
MOST_BYTES = 4 << 30
DRAFT = ".making-"
TEMPORARY = "layerscope-timeline-"
# A folder this young may be one whose maker is about to lock it.
LEFT_AFTER_S = 60
_SOURCE = str(Path(__file__).resolve().parents[3])
# Whatever the user's PYTHONPATH and working directory hold.
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from layerscope.analyse.timeline.making import main; main()"
)
_NO_ROOM = (
    "the timeline of {} cannot be prepared: {}. It takes about 40 bytes a span in {}; make room "
    "there, or name another folder by XDG_CACHE_HOME or TMPDIR"
)


class KeptColumns:
    """The folder with the columns of a recording. `files`: those of its spans and links."""

    def __init__(
        self,
        run: Run,
        files: list[Path],
    ) -> None:
        self._run = run
        self._name = f"{run.info.run_id}-{_identity(files)}"
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: Path | None = None
        self._lock: int | None = None
        self._unlocking = threading.Lock()  # who closes may do it while another thread makes them
        self._is_closed = False

    def folder(self) -> Path:
        """Where they are; made first where they are not there yet."""
        remove_what_was_left()
        for base in cache.caches(cache.TIMELINES):
            folder = base / self._name
            if cache.is_ours(folder) and (folder / ABOUT).exists():
                cache.remember(folder, self._run.path)
                return folder
        problem: OSError | None = None
        for base in cache.caches(cache.TIMELINES):
            try:
                return self._made_in(base)
            except OSError as error:
                problem = error
        return self._made_for_now(problem)

    def made_again(self) -> Path:
        """The folder with new ones in place of what is kept, which was damaged: the machine may
        have lost its power before all of it was on the disk.
        """
        for base in cache.caches(cache.TIMELINES):
            shutil.rmtree(base / self._name, ignore_errors=True)
        return self.folder()

    def close(self) -> None:
        """End what is being made, and remove what is not kept."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
        self.are_mapped()

    def are_mapped(self) -> None:
        """Whoever needs the files has them mapped into memory: what is not kept is removed, before
        this process may be killed.
        """
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        self._unlock()

    def _locked(self, folder: Path) -> Path:
        self._lock = os.open(folder, os.O_RDONLY)
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return folder

    def _unlock(self) -> None:
        with self._unlocking:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _made_in(self, base: Path) -> Path:
        cache.make(base)
        draft = self._locked(Path(tempfile.mkdtemp(prefix=DRAFT, dir=base)))
        try:
            self._make(draft)
            cache.remember(draft, self._run.path)
            folder = base / self._name
            with contextlib.suppress(OSError):  # another viewer was faster
                draft.rename(folder)
            _make_room(base, folder, self._run.info.run_id)
            return folder
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            self._unlock()

    def _made_for_now(
        self,
        problem: OSError | None,
    ) -> Path:
        try:
            self._temporary = self._locked(Path(tempfile.mkdtemp(prefix=TEMPORARY)))
            self._make(self._temporary)
        except OSError as error:
            why = (problem or error).strerror or str(problem or error)
            where = tempfile.gettempdir()
            raise ReadError(_NO_ROOM.format(self._run.path, why, where)) from error
        return self._temporary

    def _make(self, folder: Path) -> None:
        """Have a process write them. OSError: it could not."""
        flags = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
        command = [sys.executable, *flags, "-c", _START, _SOURCE]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            self._process = process
            _, errors = process.communicate(pickle.dumps((self._run, folder)))
            self._process = None
        if self._is_closed:
            raise ReadError("layerscope view has ended")
        if process.returncode == CANNOT_WRITE:
            raise OSError(errors.decode("utf-8", "replace").strip())
        if process.returncode:
            last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            why = last or f"its process ended with status {process.returncode}"
            raise ReadError(f"the timeline of {self._run.path} cannot be prepared: {why}")


def remove_what_was_left() -> None:
    """Remove the folders of makers that were killed."""
    bases = [(base, DRAFT) for base in cache.caches(cache.TIMELINES)]
    for base, prefix in [*bases, (Path(tempfile.gettempdir()), TEMPORARY)]:
        with contextlib.suppress(OSError):  # there is no such folder
            names = [name for name in os.listdir(base) if name.startswith(prefix)]
            for folder in [base / name for name in names]:
                if _was_left(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _was_left(folder: Path) -> bool:
    """Whether nobody holds its lock."""
    if not cache.is_ours(folder):
        return False
    try:
        if time.time() - folder.stat().st_mtime < LEFT_AFTER_S:
            return False
        lock = os.open(folder, os.O_RDONLY)
    except OSError:  # somebody else removes it too
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _identity(files: list[Path]) -> str:
    """Of files with these sizes and times, by this version."""
    digest = hashlib.sha256(f"{FORMAT}".encode())
    for file in files:
        about = file.stat()
        digest.update(f"{file}\0{about.st_size}\0{about.st_mtime_ns}\0{about.st_ino}\n".encode())
    return digest.hexdigest()[:16]


def _make_room(
    base: Path,
    own: Path,
    run_id: str,
) -> None:
    """Remove what was made of other tables of the same recording, and what was used longest ago
    where all take too much.
    """
    others = []
    for folder in base.iterdir():
        if folder == own or not cache.is_ours(folder) or folder.name.startswith(DRAFT):
            continue
        note = cache.origin(folder)
        used_s = 0.0 if note is None or folder.name.startswith(f"{run_id}-") else note.used_s
        others.append((used_s, folder, _bytes(folder)))
    left = _bytes(own) + sum(size for _, _, size in others)
    for used_s, folder, size in sorted(others):
        if used_s and left <= MOST_BYTES:
            break
        # At once under another name: nobody finds half of it.
        gone = base / f"{DRAFT}{folder.name}-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            os.rename(folder, gone)
            shutil.rmtree(gone, ignore_errors=True)
        left -= size


def _bytes(folder: Path) -> int:
    with contextlib.suppress(OSError):  # somebody else removes it too
        sizes = [file.stat().st_size for file in folder.iterdir()]
        return sum(sizes)
    return 0

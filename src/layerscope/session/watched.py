"""What `layerscope top` watches: a recording that grows, or one that it makes for itself of a
program that nobody records.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.host import clock
from layerscope.ingest.open import is_growing, session_lives
from layerscope.model.errors import LayerscopeError, UsageError
from layerscope.rawfile import windows
from layerscope.rawfile.raw_file import MAX_SIZE
from layerscope.recording.run import SUFFIX, Run, find_run
from layerscope.session import standby
from layerscope.session.create import shown
from layerscope.session.living import living_at, living_of
from layerscope.session.watcher_guard import WatcherGuard

if TYPE_CHECKING:
    from layerscope.session.attach import Attached

_REMEDY = (
    "Start one: layerscope run train.py. Or name a program that runs already: layerscope top PID"
)
# What a recording that nobody keeps may take on disk.
_MOST_BYTES = 500_000_000
# So long a program is recorded before one screen of it is printed.
_WARM_S = 3.0
_STANDBY = (
    "Stacks alone: operators are recorded after layerscope start {0}, which opens its standby."
)
_CLOSED = "Nothing is recorded at the moment. To record: layerscope start {}"


class WatchedRecording:
    """A recording that grows. `name`: as a person types it, `title`: the program's command; `pid`
    0: not known. `start_ns`: when the recording began, `program_start_ns`: when the program did,
    0: not known; `cpus`: how many it may use, None: not known. `since`: what the sums begin with;
    `warm_s`: how long it takes until there is something to see.
    """

    def __init__(self, run: Run, name: str, pid: int = 0) -> None:
        self.path = run.path
        self.raw = run.raw
        self.name = name
        program, *arguments = run.info.command or [""]
        self.title = shlex.join([os.path.basename(program), *arguments])
        self.pid = pid
        self.start_ns = run.info.start_ns
        self.program_start_ns = (clock.started_ns(pid) if pid else 0) or run.info.start_ns
        self.cpus = run.info.granted_cpus
        self.since = "since start"
        self.warm_s = 0.0
        asked = windows.read(run.raw)
        self._is_steered = asked is not None and asked.steered
        self.next_command = f"layerscope summary {shlex.quote(name)}"

    def closed(self) -> str:
        """Why nothing is recorded at the moment, in a sentence; empty where something is. Asked
        every second or so.
        """
        if not self._is_steered:
            return ""
        living = living_at(self.path)
        is_closed = living is not None and not living.window.get("open", True)
        whom = self.pid or shlex.quote(self.name)
        return _CLOSED.format(whom) if is_closed else ""

    def is_over(self) -> bool:
        """Whether nothing more will come; asked every second or so."""
        try:
            return not _is_live(Run.open(self.path))
        except LayerscopeError:
            return True

    def close(self) -> None:
        """Stop watching."""


class WatchedProcess(WatchedRecording):
    """A program that is recorded from outside for as long as it is watched, and then no more: the
    recording is removed.
    """

    def __init__(self, attached: Attached, folder: Path) -> None:
        super().__init__(attached.recording, "", attached.pid)
        self.start_ns = attached.recorder.start_ns
        self.since = "while watched"
        self.warm_s = _WARM_S
        self.next_command = "layerscope run, to have it recorded from its start"
        self._attached = attached
        self._folder = folder
        self._guard = WatcherGuard(folder)
        self._pidfd = os.pidfd_open(attached.pid)
        self._is_prepared = standby.is_prepared(attached.pid)

    def is_over(self) -> bool:
        """Whether the program has ended."""
        self._attached.watch()
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        ended = poll.poll(0)
        return bool(ended)

    def closed(self) -> str:
        """It is recorded for as long as it is watched."""
        return _STANDBY.format(self.pid) if self._is_prepared else ""

    def close(self) -> None:
        """Stop recording; the program goes on, and nothing of ours is left."""
        os.close(self._pidfd)
        try:
            self._attached.end()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._guard.release()


def watched(target: str | None) -> WatchedRecording:
    """What `target` names: a recording, or the pid of a program; None: the newest recording here
    that grows. UsageError where there is none.
    """
    if target is None:
        return _of_run(_newest())
    if target.isdecimal() and not Path(target).exists():
        return _of_pid(int(target))
    return _of_run(find_run(target))


def _of_run(path: Path) -> WatchedRecording:
    """The recording at `path`, which must still grow."""
    run = Run.open(path)
    name = shown(path)
    if not _is_live(run):
        next_command = f"layerscope summary {shlex.quote(name)}"
        raise UsageError(
            f"{name} is complete: its program does not run any more. See what it did: "
            f"{next_command}"
        )
    living = living_at(path)
    return WatchedRecording(run, name, living.program_pid if living else 0)


def _of_pid(pid: int) -> WatchedRecording:
    """The program `pid`: its recording, if there is one, else one of our own."""
    if not Path(f"/proc/{pid}").exists():
        raise UsageError(f"there is no process {pid}. To see which there are: ps -e")
    living = living_of(pid)
    if living is not None:
        return WatchedRecording(Run.open(living.path), shown(living.path), living.program_pid)
    return _attached(pid)


def _attached(pid: int) -> WatchedProcess:
    """The program `pid`, which is recorded from outside from now on."""
    from layerscope.capture.sampler import HZ
    from layerscope.session import attach
    from layerscope.session.run import write_options

    program = attach.target(pid)
    folder = Path(tempfile.mkdtemp(prefix="layerscope-top-"))
    try:
        recording = attach.create_for(program, str(folder / "top"), quiet=True)
        write_options(recording, {MAX_SIZE: _MOST_BYTES})
        attached = attach.Attached(program, recording, HZ, tree=True)
        # Nobody asks for tables.
        attached.recorder.on_watch.clear()
        attached.begin()
        return WatchedProcess(attached, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _newest() -> Path:
    """The newest recording in this folder that grows."""
    here = Path.cwd()
    found = [path for path in here.glob(f"*{SUFFIX}") if (path / "run.json").exists()]
    found.sort(key=lambda path: (path / "run.json").stat().st_mtime_ns, reverse=True)
    for path in found:
        with contextlib.suppress(LayerscopeError):
            if _is_live(Run.open(path)):
                return path
    raise UsageError(f"no recording in {here} is being made. {_REMEDY}")


def _is_live(run: Run) -> bool:
    """Whether more may come."""
    if run.info.state != "running":
        return False
    return run.is_joined or session_lives(run) or is_growing(run.raw)

"""What `layerscope top` watches: which recording that grows, and whether it still does."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from msgspec import Struct

from layerscope.ingest.open import is_growing, session_lives
from layerscope.model.errors import LayerscopeError, UsageError
from layerscope.recording.run import SUFFIX, Run, find_run
from layerscope.session.create import shown

_REMEDY = (
    "Start one: layerscope run train.py. Or name a program that runs already: layerscope top PID"
)


class Watched(Struct):
    """A recording that grows. `run`: as a person names it; `title`: the program's command; `pid` 0:
    not known; `cpus`: how many it may use, None: not known.
    """

    raw: Path
    run: str
    title: str
    pid: int
    start_ns: int
    cpus: float | None
    path: Path

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        try:
            return not _is_live(Run.open(self.path))
        except LayerscopeError:
            return True

    @property
    def next_command(self) -> str:
        """What to type when it is over."""
        return f"layerscope summary {shlex.quote(self.run)}"

    def close(self) -> None:
        """Nothing is to be let go: the recording is not ours."""


def watched(target: str | None) -> Watched:
    """What `target` names: a recording, or the pid of a program; None: the newest recording here
    that grows. UsageError where there is none.
    """
    if target is None:
        return of_run(_newest())
    if target.isdecimal() and not Path(target).exists():
        return of_pid(int(target))
    return of_run(find_run(target))


def of_run(path: Path) -> Watched:
    """The recording at `path`, which must still grow."""
    run = Run.open(path)
    name = shown(path)
    if not _is_live(run):
        raise UsageError(
            f"{name} is complete: its program does not run any more. "
            f"See what it did: layerscope summary {shlex.quote(name)}"
        )
    info = run.info
    return Watched(
        run.raw, name, shlex.join(info.command), 0, info.start_ns, info.granted_cpus, path
    )


def of_pid(pid: int) -> Watched:
    """The program `pid`, which is being recorded."""
    if not Path(f"/proc/{pid}").exists():
        raise UsageError(f"there is no process {pid}. See which there are: ps -e")
    raise UsageError(f"process {pid} is not being recorded")


def _newest() -> Path:
    """The newest recording in this folder that grows."""
    found = [path for path in Path.cwd().glob(f"*{SUFFIX}") if (path / "run.json").exists()]
    found.sort(key=lambda path: (path / "run.json").stat().st_mtime_ns, reverse=True)
    for path in found:
        try:
            if _is_live(Run.open(path)):
                return path
        except LayerscopeError:
            continue
    raise UsageError(f"no recording in {Path.cwd()} is being made. {_REMEDY}")


def _is_live(run: Run) -> bool:
    if run.info.state != "running":
        return False
    return run.is_joined or session_lives(run) or is_growing(run.raw)


def now_ns() -> int:
    """The run's clock."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

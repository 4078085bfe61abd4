"""Makes the folder of a recording before the program starts, and removes it where the program never
did.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from layerscope import __version__
from layerscope.capture import launchers
from layerscope.capture.launchers import Launch
from layerscope.checks import kept_measurements
from layerscope.host import machine
from layerscope.model import cache
from layerscope.model.errors import RunError, UsageError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.model.secrets import kept_environment, mask
from layerscope.rawfile.windows import RequestedWindow
from layerscope.recording.run import (
    RANKS,
    SUFFIX,
    Run,
    RunInfo,
    free_name,
)
from layerscope.session.command import program_name
from layerscope.session.spooling import let_go
from layerscope.show.screen import notify, printable


def create(
    output: str | None,
    command: list[str],
    quiet: bool,
    launch: Launch | None = None,
    chosen: Sequence[int] = (),
    window: RequestedWindow | None = None,
) -> Run:
    """Make the recording, in the working directory or, where that cannot be written, in a temporary
    folder.
    """
    info = _first_info(command)
    info.window = window.says() if window else ""
    if output:
        path = Path(output if output.endswith(SUFFIX) else output + SUFFIX).absolute()
        return _create_named(path, info, launch, chosen)
    stem = Path(text(program_name(command))).name.removesuffix(".py") or "program"
    try:
        here = Path.cwd()
        if not _is_utf8(here):
            raise RunError("its name is not UTF-8")
        return _create_in(here, stem, info, launch, chosen)
    except (RunError, OSError) as error:
        why = error.__cause__ or error
        reason = why.strerror if isinstance(why, OSError) else why
        try:
            recording = _create_in(cache.temporary(), stem, info, launch, chosen)
        except OSError as other:
            raise RunError(
                f"cannot make the recording in {text(cwd())}: {reason}; nor elsewhere: "
                f"{other.strerror}. Choose a place with -o"
            ) from other
        if not quiet:
            notify(
                f"layerscope: {text(cwd())} cannot be written ({reason}): recording into "
                f"{shown(recording.path)}\n"
            )
        return recording


def _first_info(command: list[str]) -> RunInfo:
    """`run.json` as it is before the program starts."""
    return RunInfo(
        schema=SCHEMA_VERSION,
        layerscope=__version__,
        run_id=os.urandom(8).hex(),
        state="running",
        command=[text(word) for word in mask(command)],
        cwd=text(cwd()),
        environment=kept_environment(os.environ),
        host={**kept_measurements.as_host(machine.facts(ask=False)), "name": os.uname().nodename},
        started_utc=now(),
        start_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        session_pid=os.getpid(),
    )


def _create_named(path: Path, info: RunInfo, launch: Launch | None, chosen: Sequence[int]) -> Run:
    """The recording at `path`, as -o names it."""
    if not _is_utf8(path):
        raise UsageError(
            f"the recording {text(str(path))} must have a name in UTF-8. Choose another with -o"
        )
    if launch is not None:
        from layerscope.session.ranked import create_named

        return create_named(path, launch, chosen, info)
    if path.exists():
        raise UsageError(
            f"{text(str(path))} exists already. Remove it, or choose another name with -o"
        )
    return _create(path, info)


def _create_in(
    folder: Path, stem: str, info: RunInfo, launch: Launch | None, chosen: Sequence[int]
) -> Run:
    """A recording in `folder` under the first name that is free; in a batch job its number belongs
    to the name.
    """
    if launch is not None:
        from layerscope.session.ranked import create_here

        return create_here(folder, stem, launch, chosen, info)
    job = launchers.batch_job(os.environ)
    while True:
        try:
            return _create(free_name(folder, f"{stem}-{job}" if job else stem), info)
        except RunError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise


def _create(path: Path, info: RunInfo) -> Run:
    """The recording at `path`; one that could be made only in part is removed again."""
    try:
        return Run.create(path, info)
    except RunError as error:
        if not isinstance(error.__cause__, FileExistsError):
            shutil.rmtree(path, ignore_errors=True)
        raise


def _is_utf8(path: Path) -> bool:
    """What reads and writes Parquet takes no other names."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def discard(recording: Run) -> None:
    """The program never started: leave nothing behind."""
    let_go(recording)
    shutil.rmtree(recording.path, ignore_errors=True)
    ranks = recording.path.parent
    if ranks.name == RANKS:
        with contextlib.suppress(OSError):  # other ranks are there
            ranks.rmdir()
            shutil.rmtree(ranks.parent, ignore_errors=True)


def shown(path: Path) -> str:
    """`path` as a person types it here, on one line."""
    here = cwd()
    is_below = here not in ("", "/") and path.is_relative_to(here)
    return printable(str(path.relative_to(here) if is_below else path))


def cwd() -> str:
    """The working directory, empty where it was removed."""
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def text(word: str) -> str:
    """`word` as a file can hold it: bytes that are no UTF-8 become visible."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def now() -> str:
    """The time of day in UTC, as ISO 8601 writes it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

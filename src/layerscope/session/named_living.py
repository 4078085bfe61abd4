"""Which recordings somebody means who names one that is being made: by its folder, by the pid of a
process in it, or not at all. Every UsageError says why there is none, and what to do.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from layerscope.model.errors import ReadError, UsageError
from layerscope.recording.run import RANKS, SUFFIX, Run, find_run
from layerscope.session.living import Living, every_living, living_in, living_of
from layerscope.session.outside import environment_of, words_of
from layerscope.session.standby import STANDBY, VARIABLE

_MOST_NAMED = 5
_ROOT = 0
MAKE_ONE = "Make one: layerscope run --paused train.py"
_NO_DOOR = (
    "It was started with LAYERSCOPE_AUTOSTART=standby, but has no door: it is no Python with "
    "layerscope, or handles SIGURG itself; or its memory may not be read, then do this as root. "
    "`layerscope attach` records it from outside"
)


def named(word: str | None) -> list[Living]:
    """The recording that `word` means, a folder or a pid; of several ranks all of this machine.
    None: the only one in this folder.
    """
    if word is None:
        return _here()
    if word.isascii() and word.isdigit():
        return [_of_pid(int(word))]
    path = find_run(word)
    found = living_in(path)
    if not found:
        raise UsageError(_why_not(path))
    return found


def whole_path(living: Living) -> Path:
    """The folder that a person opens: of a rank, that of all ranks."""
    above = living.path.parent
    return above.parent if above.name == RANKS else living.path


def _here() -> list[Living]:
    here = Path.cwd()
    by_path: dict[Path, list[Living]] = {}
    for one in every_living():
        by_path.setdefault(whole_path(one), []).append(one)
    found = [path for path in by_path if path.parent == here]
    if len(found) == 1:
        return by_path[found[0]]
    if found:
        raise UsageError(
            f"{len(found)} recordings are being made here: {_list(found)}. Name the one you mean"
        )
    elsewhere = f" Elsewhere there is {_list(by_path)}: name it." if by_path else f" {MAKE_ONE}"
    raise UsageError(f"no recording is being made in {here}.{elsewhere}".rstrip("."))


def _list(paths: Iterable[Path]) -> str:
    here = Path.cwd()
    names = sorted(
        path.name.removesuffix(SUFFIX) if path.parent == here else str(path) for path in paths
    )
    more = len(names) - _MOST_NAMED
    told = ", ".join(names[:_MOST_NAMED])
    return f"{told} and {more} more" if more > 0 else told


def _of_pid(pid: int) -> Living:
    found = living_of(pid)
    if found is not None:
        return found
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        raise UsageError(f"there is no process {pid}") from None
    if os.getuid() not in (_ROOT, owner):
        raise UsageError(
            f"process {pid} belongs to user {_user(owner)}: only that user and root can say what "
            "is recorded of it"
        )
    is_meant = environment_of(pid).get(VARIABLE) == STANDBY
    raise UsageError(
        f"process {pid} is in no recording that is being made. {_NO_DOOR if is_meant else MAKE_ONE}"
    )


def _why_not(path: Path) -> str:
    """Why no session of the recording at `path` answers."""
    try:
        run = Run.open(path)
    except ReadError:
        return f"{path} is no recording that is being made. {MAKE_ONE}"
    info = run.info
    if info.state != "running" or path.is_file():
        return f"the recording {path} is complete: it has ended. {MAKE_ONE}"
    host = info.host.get("name")
    if host != os.uname().nodename:
        return f"the recording {path} is being made on host {host}, and can be steered there only"
    try:
        owner = os.stat(f"/proc/{info.session_pid}").st_uid
    except OSError:
        owner = os.getuid()
    if os.getuid() not in (_ROOT, owner):
        return (
            f"the recording {path} is made by user {_user(owner)}: only that user and root can "
            "say what is recorded"
        )
    if "attach" in words_of(info.session_pid, "cmdline"):
        return (
            f"the recording {path} is made by `layerscope attach` from outside: it has no window "
            "and takes no marks. Ctrl-C there ends it"
        )
    return (
        f"the session of {path} does not answer: it has ended, or runs in another container. What "
        "it recorded is kept"
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

"""The JSON files beside the raw files, validated: what was asked for, and what the session said at
its end.

They may be damaged, or come from somebody else. What does not have these types is not used, and it
is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec

from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.model.stored_json import Int32, Int64, Size, decoded

OPTIONS = "options.json"
SESSION = "session.json"
_Read = TypeVar("_Read")
# Seconds, or a number of steps.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Bytes = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class WindowOptions(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of `windows.Window`. One that is not known would mean another window."""

    first: Size | None = None
    last: Size | None = None
    after_s: _Seconds | None = None
    for_s: _Seconds | None = None
    every: _Seconds | None = None
    steered: bool = False
    budget: _Share | None = None


class Options(TypedDict, total=False):
    """`options.json`: what the user asked for, which the drainer and every conversion must know."""

    max_size: _Bytes
    full: bool
    late: bool
    step_mark: str
    profiler_share: _Share | None
    window: WindowOptions


class ProblemFields(TypedDict):
    """A row of `problems`."""

    layer: str
    code: str
    what: str
    remedy: str
    lost: str


class SessionState(TypedDict, total=False):
    """`session.json`: how the program ended, and what could not be recorded."""

    pid: Int32
    end_ns: Int64
    exit: Int32 | None  # null: nobody waited for the program
    problems: list[ProblemFields]


def read_options(raw: Path) -> dict[str, Any]:
    """What the user asked for when the recording was made; of several ranks, of one. Empty: nothing
    can be read.
    """
    for file in _files(raw, OPTIONS):
        options = _read(file, Options)
        if isinstance(options, dict):
            return {**msgspec.to_builtins(options)}
    return {}


def read_session(raw: Path) -> dict[str, Any]:
    """What the session left for the converter; empty when it never came to its end."""
    session = _read(raw / SESSION, SessionState)
    if not isinstance(session, dict):
        return {}
    return dict(session)


def damage(raw: Path) -> Iterator[Problem]:
    """What has to be said about files below `raw` that are there and cannot be used."""
    lost = {
        OPTIONS: "what was asked for when it was made: --step-mark, a window, --max-size",
        SESSION: "how the program ended, and what layerscope could not record",
    }
    for name, kind in ((OPTIONS, Options), (SESSION, SessionState)):
        for file in _files(raw, name):
            reason = _read(file, kind)
            if isinstance(reason, str):
                what = f"{file.relative_to(raw)} of the raw files is damaged ({reason})"
                remedy = "copy the recording again from where it was made"
                yield Problem(OPERATORS, f"{file.stem}_damaged", what, remedy, lost[name])


def _files(raw: Path, name: str) -> list[Path]:
    """The files of this name: of a recording one, of several ranks theirs."""
    of_recording = raw.glob(name)
    of_ranks = raw.glob(f"*/raw/{name}")
    return sorted([*of_recording, *of_ranks])


def _read(file: Path, kind: type[_Read]) -> _Read | str | None:
    """What `file` holds; None when it is not there, and what is wrong when it is not of this
    `kind`.
    """
    try:
        return decoded(file.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)

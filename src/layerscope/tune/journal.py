"""What has been measured so far, on disk: one JSON line for each run of the program, so that a race
can be resumed.

The first line says what was asked; each other one is a measurement and how long it took in all. A
race is decided by its seed and its measurements alone, so giving it the kept ones again, in their
order, brings it to where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field, to_builtins

from layerscope.model.errors import ReadError, RunError
from layerscope.model.stored_json import decoded
from layerscope.tune.measurement import Measurement
from layerscope.tune.setting import Setting


class Question(Struct, frozen=True):
    """What decides what is measured, and in which order. `options`: of the command line, by name;
    `machine`: host name, CPU and how many of them, in words; `settings`: names of all that may be
    tried, `commands`: how each starts the program; `files`: the interpreter and the script, with
    what they hold in short; `environment`: variables that libraries read.
    """

    program: tuple[str, ...]
    folder: str
    options: Mapping[str, str]
    seed: int
    machine: str
    layerscope: str
    settings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class _Head(msgspec.Struct, frozen=True):
    question: dict[str, Any]


class _Entry(msgspec.Struct, frozen=True):
    measurement: Measurement
    took_s: float


class Journal:
    """Gives back what is kept, in its order, then appends. Close it at the end."""

    def __init__(self, path: Path, question: Question) -> None:
        """Opens the file, or makes it.

        Raises ReadError where it holds another question or something else, RunError where it cannot
        be written.
        """
        self._path = path
        if path.exists() and not path.is_file():
            raise RunError(f"the journal {path} cannot be used: it is no file; name another one")
        try:
            content = path.read_bytes() if path.exists() else b""
            # What has no end of line was cut off while it was written.
            whole = content[: content.rfind(b"\n") + 1]
            self._kept = _entries(path, whole, question)
            # Without a buffer: what cannot be written is not tried again when the file is closed.
            self._file = path.open("r+b" if content else "wb", buffering=0)
            self._file.truncate(len(whole))
            self._file.seek(len(whole))
        except OSError as error:
            raise RunError(
                f"the journal {path} cannot be used: {error.strerror}; name another one"
            ) from error
        self.kept = len(self._kept)
        self._given = 0
        if not whole:
            self._write({"question": to_builtins(question)})

    def next(self, setting: Setting, round_: int) -> tuple[Measurement, float] | None:
        """The kept measurement that comes next, and how long it took; None where there is none any
        more.

        Raises ReadError where it is not one of this setting in this round.
        """
        if self._given == len(self._kept):
            return None
        entry = self._kept[self._given]
        if (entry.measurement.setting, entry.measurement.round) != (setting.name, round_):
            raise ReadError(
                f"the journal {self._path} does not go with this race: it has "
                f"{entry.measurement.setting!r} in round {entry.measurement.round} where "
                f"{setting.name!r} is due in round {round_}; {_REMEDY}"
            )
        self._given += 1
        return entry.measurement, entry.took_s

    def add(self, measurement: Measurement, took_s: float) -> None:
        """Keep one more."""
        entry = {"measurement": to_builtins(measurement), "took_s": took_s}
        self._write(entry)

    def close(self) -> None:
        """Nothing can be added any more."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        words = json.dumps(line, default=list).encode() + b"\n"
        try:
            while words:
                words = words[self._file.write(words) :]
        except OSError as error:
            raise RunError(
                f"the journal {self._path} cannot be written: {error.strerror}"
            ) from error


_REMEDY = "remove it to start again, or name another one"


def _entries(path: Path, content: bytes, question: Question) -> list[_Entry]:
    """What the whole lines of the file hold."""
    if not content:
        return []
    first, *rest = content.splitlines()
    try:
        asked = decoded(first, _Head).question
        as_text = json.dumps(to_builtins(question), default=list)
        due = json.loads(as_text)
        differing = [name for name in due if asked.get(name) != due[name]]
        entries = [] if differing else [decoded(line, _Entry) for line in rest]
    except ValueError as error:
        raise ReadError(
            f"{path} is no journal of layerscope tune, or it is damaged; {_REMEDY}"
        ) from error
    if differing:
        name = differing[0]
        raise ReadError(
            f"the journal {path} answers another question: its {name} is "
            f"{_short(asked.get(name))}, now it is {_short(due[name])}; {_REMEDY}"
        )
    return entries


def kept_options(path: Path) -> dict[str, str]:
    """The options of the command line that the journal at `path` was begun with; empty when there
    is none to read.
    """
    try:
        with path.open("rb") as file:
            return msgspec.convert(
                decoded(file.readline(), _Head).question.get("options", {}), dict[str, str]
            )
    except (OSError, ValueError):
        return {}


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= 200:
        return text
    beginning = text[:197]
    return f"{beginning}..."

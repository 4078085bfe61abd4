"""The files that the own profilers of frameworks left beside the raw files, read when they are
there. Used by `profiles` and `followed_segments`.

A framework's hook leaves FORMAT-PID-NUMBER.profile, which says how the file is read and when the
profile began, and the profiler a file whose name begins so.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

import layerscope.sources
from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.model.stored_json import decoded
from layerscope.rawfile.log_files import PROFILES
from layerscope.sources.imported import Imported

# How the name of a file ends that is still written.
_UNFINISHED = ".part"

ReadProfile = tuple[list[Imported], list[Problem]]


class ProfileFile(Struct, frozen=True):
    """One `.profile` file; `about`: what it says."""

    path: Path
    about: dict[str, Any]

    @property
    def pid(self) -> int:
        """The number of the process, by the name of the file."""
        *_, number, _ = ("", *self.path.stem.rsplit("-", 2))
        return int(number) if number.isdecimal() else -1

    def files(self) -> list[Path]:
        """What the profiler wrote."""
        stem = self.path.stem
        beside = self.path.parent.glob(f"{stem}_*")
        inside = self.path.parent.glob(f"{stem}/plugins/profile/*/*.pb")
        return sorted(path for path in [*beside, *inside] if path.suffix != _UNFINISHED)

    @property
    def has_ended(self) -> bool:
        """Whether its file is there, which it is when all of it is written."""
        return self.about.get("is_whole") is True and bool(self.files())

    def first_ns(self, content: Imported) -> int | None:
        """When the first span began, on CLOCK_REALTIME; None: that is not known."""
        if content.realtime_ns is not None:
            return content.realtime_ns
        began_ns = self.about.get("begun_realtime_ns")
        return began_ns + content.first_ns if isinstance(began_ns, int) else None


def profiles_in(
    raw: Path, known: Container[Path] = (), pid: int | None = None
) -> Iterator[ProfileFile]:
    """Those that are not `known`, in the order in which they began. `pid`: of one process."""
    pattern = PROFILES if pid is None else f"*-{pid}-{PROFILES}"
    paths = [path for path in raw.glob(pattern) if path not in known]
    for path in sorted(paths, key=lambda one: (len(one.name), one.name)):
        try:
            about = decoded(path.read_bytes(), dict[str, Any])
        except (OSError, ValueError):
            about = {}  # the program was killed while it wrote
        yield ProfileFile(path, about)


def contents_of(profile: ProfileFile) -> ReadProfile:
    """What is in the files of a profile, and which of them cannot be read."""
    contents, problems = [], []
    known = {module.name for module in pkgutil.iter_modules(layerscope.sources.__path__)}
    name = profile.about.get("format")
    if name not in known:
        return [], []
    reader = importlib.import_module(f"layerscope.sources.{name}")
    for file in profile.files():
        try:
            content = getattr(reader, "recorded", reader.read)(file)
        except ReadError as error:
            if file.stat().st_size:
                what, lost = f"{error}", "operators of this profile"
                problems.append(Problem(OPERATORS, "profile_damaged", what, "record again", lost))
            continue
        contents.append(content)
    return contents, problems

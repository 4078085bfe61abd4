"""The formats of `layerscope export`: one file each, found by this folder; the file's extension
chooses.

A format is a module with a docstring (its first line says what the file is) that defines

    SUFFIXES  the ends of the file names it writes; one that ends in .gz is compressed here
    OPEN      what to do with the file, as the end of the sentence "Next: "
    write     (reader, stream, steps) -> Exported
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from layerscope.model.errors import RunError, UsageError

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Half the CPU time of level 3, and a file 8 % larger.
GZIP_LEVEL = 1


class Exported(Struct, frozen=True):
    """What was written: spans, how many of them on tracks of their own because they cross others,
    and remarks.
    """

    spans: int
    crossing: int = 0
    notes: tuple[str, ...] = ()


class ExportFormat(Protocol):
    """What a file of this folder provides."""

    __doc__: str | None
    SUFFIXES: tuple[str, ...]
    OPEN: str

    def write(self, reader: Reader, stream: IO[bytes], steps: range | None) -> Exported:
        """Write the recording, or the spans of some of its steps, into `stream`."""


def formats() -> dict[str, ExportFormat]:
    """The formats by the end of the file's name."""
    found: dict[str, ExportFormat] = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if hasattr(module, "SUFFIXES"):
            found |= dict.fromkeys(module.SUFFIXES, cast(ExportFormat, module))
    return found


def format_of(path: Path) -> ExportFormat:
    """The format that the name of `path` asks for; UsageError that lists the formats when there is
    none.
    """
    known = formats()
    fitting = [suffix for suffix in known if path.name.endswith(suffix)]
    if not fitting or path.name in known:
        raise UsageError(
            f"{path.name!r} names no format. The extension chooses it: {', '.join(sorted(known))}"
        )
    return known[max(fitting, key=len)]


def export(reader: Reader, path: Path, steps: range | None = None) -> Exported:
    """Write the recording to `path`, which is replaced only when the new file is whole."""
    module = format_of(path)
    with whole_or_nothing(path) as stream:
        if not path.name.endswith(".gz"):
            return module.write(reader, stream, steps)
        with gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0) as compressed:
            return module.write(reader, cast(IO[bytes], compressed), steps)


@contextlib.contextmanager
def whole_or_nothing(path: Path) -> Iterator[IO[bytes]]:
    """A file beside `path` that takes its name at the end, or goes away if there is no end;
    RunError in words then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    done = False
    try:
        with temporary.open("xb") as stream:
            yield stream
        os.replace(temporary, path)
        done = True
    except OSError as error:
        raise RunError(
            f"{path} was not written: {error.strerror or error}. Nothing else was changed; free "
            "some space, or name a file in another folder"
        ) from error
    finally:
        if not done:
            temporary.unlink(missing_ok=True)

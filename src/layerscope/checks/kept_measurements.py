"""What was measured last is kept in the user's cache: recordings made later say by it what the
machine reaches.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from layerscope.host import machine
from layerscope.host.machine import Machine
from layerscope.model import cache
from layerscope.model.measured import TORCH, Measured
from layerscope.model.stored_json import decoded

# Of one kind of machine: as many Pythons, or builds of torch, as somebody may have in use.
_MOST = 8


def keep(here: Machine, measured: Measured) -> None:
    """Keep it, in place of what the same machine, Python and build of torch had; without a cache it
    is not kept.

    What has no rates at all is not worth it.
    """
    folder = next(iter(cache.caches(cache.PLATFORM)), None)
    if folder is None or not measured.rates:
        return
    build = ""
    for library in measured.libraries:
        if library.name == TORCH:
            build = f"{library.version} {library.path}"
            break
    python = _digest(f"{measured.python} {build}")
    path = folder / f"{_machine_key(here)}-{python}.json"
    with contextlib.suppress(OSError):
        cache.make(folder)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(msgspec.json.encode(measured))
        os.replace(temporary, path)
        for old in _newest_first(folder, here)[_MOST:]:
            old.unlink()


def kept(here: Machine, python: str = "") -> Measured | None:
    """The newest that was measured on such a machine with so many CPUs granted, by `python` if it
    is named.

    None where there is none. It costs the reading of one small file.
    """
    for folder in cache.caches(cache.PLATFORM):
        for path in _newest_first(folder, here):
            with contextlib.suppress(OSError, ValueError):
                found = decoded(path.read_bytes(), Measured)
                if not python or found.python == python:
                    return found
    return None


def as_host(here: Machine) -> dict[str, Any]:
    """The facts about a machine as a recording keeps them: with what was measured on such a one, as
    `measured`.
    """
    found = kept(here)
    return {
        **machine.as_json(here),
        **({} if found is None else {"measured": msgspec.to_builtins(found)}),
    }


def _newest_first(folder: Path, here: Machine) -> list[Path]:
    def taken(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:  # another process has removed it
            return 0.0

    return sorted(folder.glob(f"{_machine_key(here)}-*.json"), key=taken, reverse=True)


def _machine_key(here: Machine) -> str:
    """What decides whether a measurement is of this machine."""
    cpu = here.cpu
    return _digest(f"{cpu.model} {cpu.granted:g} {len(cpu.allowed)}")


def _digest(words: str) -> str:
    content = words.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(content)
    digits = digest.hexdigest()
    return digits[:16]

"""Functions of the kernel in a file of perf, by the first list of its symbols that is at hand.

A list is one of the kernel that runs now, if that is the one that was recorded; a file beside the
recording, `perf.data.kallsyms` or `kallsyms`, copied from /proc/kallsyms of the machine; or the one
that perf itself has put into its cache. The kernel may lie elsewhere in it, by another start of the
machine: a symbol that the file has the address of says by how much.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from layerscope.host import libraries
from layerscope.sources import perf_file
from layerscope.sources.perf_threads import Mapping, builds_of

if TYPE_CHECKING:
    from layerscope.symbols import Symbols

_OBJECTS = ("[kernel", "[guest.kernel")
_RUNNING = Path("/proc/kallsyms")


def names(
    file: perf_file.PerfFile,
    mappings: list[Mapping],
    addresses: np.ndarray,
    symbols: Callable[[], Symbols],
) -> list[str]:
    """The function at each of these addresses, "" where none is known. `symbols`: those of the
    running kernel.
    """
    texts = [""] * len(addresses)
    mapping = next((one for one in mappings if one.object.path.startswith(_OBJECTS)), None)
    if mapping is None:
        return texts
    for path in _lists(file):
        shift = _shift(path, mapping)
        if shift is None:
            continue
        # A kernel that was started again has its modules elsewhere, each by another way.
        is_inside = (addresses >= mapping.start) & (addresses < mapping.end)
        known = np.flatnonzero((shift == 0) | is_inside)
        moved = addresses[known] + np.uint64(shift & (1 << 64) - 1)
        for place, text in zip(known.tolist(), _names(path, moved, symbols), strict=True):
            texts[place] = text
        if any(texts):
            break
    return texts


def _names(path: Path, addresses: np.ndarray, symbols: Callable[[], Symbols]) -> list[str]:
    """The functions at these addresses by one list, whichever it is."""
    if path == _RUNNING:
        found = symbols().kernel(addresses)
        return list(found.name)
    from layerscope.symbols.kernel_table import KernelTable

    return KernelTable(path).names(addresses)


def _lists(file: perf_file.PerfFile) -> Iterator[Path]:
    """Lists of symbols of the kernel that was recorded, as far as that is known; the running one
    first.
    """
    builds = builds_of(file.build_ids)
    build = next((one for path, one in builds.items() if path.startswith(_OBJECTS)), "")
    if _is_running(build, file.text(perf_file.OSRELEASE)):
        yield _RUNNING
    cache = Path.home() / ".debug"
    kept = [cache / "[kernel.kallsyms]" / build, cache / ".build-id" / build[:2] / build[2:]]
    cached = [folder / "kallsyms" for folder in kept] if build else []
    beside = lists_beside(file.path) if file.path is not None else []
    yield from (*beside, *(path for path in cached if path.is_file()))


def lists_beside(path: Path) -> list[Path]:
    """Lists of symbols that were put beside the file `path`."""
    of_file = Path(f"{path}.kallsyms")
    of_folder = path.with_name("kallsyms")
    return [one for one in (of_file, of_folder) if one.is_file()]


def _is_running(build: str, release: str) -> bool:
    """Whether the kernel that was recorded runs now: the same build, or where none is told the same
    release.
    """
    try:
        own = libraries.build_id_note(Path("/sys/kernel/notes").read_bytes())
    except OSError:
        own = None
    return build == own if build and own else bool(release) and release == os.uname().release


def _shift(path: Path, mapping: Mapping) -> int | None:
    """How much later the kernel lies in this list than when it was recorded; None: that is not
    told.
    """
    _, _, symbol = mapping.object.path.rpartition("]")
    place = mapping.offset
    if symbol:
        place = _address(path, symbol)
    if not place or not mapping.offset:
        return None
    return place - mapping.offset


def _address(path: Path, symbol: str) -> int:
    """The address of a symbol in the list; 0 where it is hidden."""
    try:
        with path.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if words[2] == symbol:
                    return int(words[0], 16)
    except (OSError, ValueError, IndexError):
        pass
    return 0

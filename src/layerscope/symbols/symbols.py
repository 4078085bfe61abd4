"""Names, files and lines of code: of ELF files, of the kernel, and of code that was made while a
program ran.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from layerscope.model.events import Problem
from layerscope.model.layers import STACKS
from layerscope.symbols import perf_map as perf_maps
from layerscope.symbols.demangling import Demangler
from layerscope.symbols.elf_file import VDSO, Damaged, build_id, opened, vdso
from layerscope.symbols.kept import Kept
from layerscope.symbols.kernel_table import KernelTable
from layerscope.symbols.objects import ElfObject, Identity, identity

_NAMES = "names of functions in it"
_PROBLEMS_MOST = 64


@dataclass(slots=True)
class Named:
    """What is known of addresses, a row for each that was asked for.

    `name`: demangled, "" where nothing is known. `file`: the source file, None where it is not
    known. `line`: -1 where it is not known.
    """

    name: list[str]
    file: list[str | None]
    line: NDArray[np.int32]


class Symbols:
    """Looks addresses up, and remembers tables in the folder `cache` and in memory. Nothing in a
    file raises.

    `problems`: what could not be known and why, each once.
    """

    def __init__(self, cache: Path | None) -> None:
        self.problems: list[Problem] = []
        self._kept = Kept(cache)
        self._demangler = Demangler()
        self._objects: dict[tuple[str, bytes], ElfObject] = {}
        self._kernel: KernelTable | None = None
        self._reported: set[tuple[str, str]] = set()

    def __enter__(self) -> Symbols:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process that demangles. What was found stays usable, and more can be asked."""
        self._demangler.close()

    def native(
        self, path: str, build_id: bytes, addresses: NDArray[np.uint64], mtime_ns: int = 0
    ) -> Named:
        """Names and lines of code in the ELF file at `path`; `addresses` as its symbols count (ELF
        virtual addresses).

        Return addresses have to be given less one. `build_id`, or where there was none `mtime_ns`
        (0: not known), is that of the file that ran: of another one nothing is told.
        """
        asked, back = np.unique(np.asarray(addresses, np.uint64), return_inverse=True)
        found = self._native(path, build_id, asked, mtime_ns)
        rows = back.tolist()
        return Named(
            [found.name[row] for row in rows], [found.file[row] for row in rows], found.line[back]
        )

    def _native(
        self, path: str, identity_asked: bytes, addresses: NDArray[np.uint64], mtime_ns: int
    ) -> Named:
        result = _nothing(len(addresses))
        if not path.startswith("/") and path != VDSO:
            return result
        try:
            with vdso() if path == VDSO else opened(path) as descriptor:
                known = self._object(path, identity_asked, descriptor, mtime_ns)
                if known is None:
                    return result
                result.name = self._demangled(known.find(descriptor, self._kept, addresses))
                lines = known.find_lines(descriptor, self._kept, addresses)
                if lines is not None:
                    result.file, result.line = lines
                if known.lines is not None and known.lines.left_out:
                    self._tell_left_out(path)
        except FileNotFoundError:
            self._tell(
                "object_gone",
                path,
                f"{path} is not there any more",
                "keep the libraries of a run until it is read",
            )
        except OSError as error:
            self._tell(
                "object_unreadable",
                path,
                f"{path} cannot be read: {error.strerror}",
                f"make it readable: {path}",
            )
        except Damaged as error:
            self._tell(
                "object_damaged", path, f"{path} is no sound ELF file: {error}", "install it again"
            )
        return result

    def _object(self, path: str, asked: bytes, descriptor: int, mtime_ns: int) -> ElfObject | None:
        """What is known of the open file; None if it is another one than `asked`."""
        now: Identity = identity(descriptor)
        known = self._objects.get((path, asked))
        if known is None or known.of != now:
            found = build_id(descriptor)
            is_other = found != asked if asked else bool(mtime_ns) and now[3] != mtime_ns
            if is_other:
                what = f"{path} is another build than the one that ran"
                self._tell(
                    "object_changed",
                    path,
                    what,
                    "read a recording before its libraries are replaced",
                )
                return None
            known = self._objects[path, asked] = ElfObject(Path(path), now, found)
        return known

    def kernel(self, addresses: NDArray[np.uint64]) -> Named:
        """Functions of the kernel that runs now; "" everywhere if it tells this user no
        addresses.
        """
        if self._kernel is None:
            self._kernel = KernelTable()
        if self._kernel.hidden:
            self._tell(
                "kernel_symbols_hidden",
                "",
                "the kernel does not report where its functions are",
                "as root: sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
                "names of functions of the kernel",
            )
        result = _nothing(len(addresses))
        result.name = self._kernel.names(np.asarray(addresses, np.uint64))
        return result

    def jit(self, perf_map: Path | None, addresses: NDArray[np.uint64]) -> Named:
        """Names of code that was made while the program ran, by its map /tmp/perf-PID.map; None:
        there is none.
        """
        result = _nothing(len(addresses))
        if perf_map is not None:
            try:
                result.name = self._demangled(
                    perf_maps.names(perf_map, np.asarray(addresses, np.uint64))
                )
            except OSError as error:
                what = f"{perf_map} cannot be read: {error.strerror}"
                self._tell(
                    "jit_map_unreadable", str(perf_map), what, f"make it readable: {perf_map}"
                )
        return result

    def _demangled(self, names: list[str]) -> list[str]:
        found = self._demangler.names([name.removesuffix("@plt") for name in names])
        if self._demangler.failed:
            self._tell(
                "demangler_failed",
                "",
                "names of C++ could not be demangled",
                "pip install --force-reinstall pycxxfilt",
                "readable names",
            )
        return [
            f"{new}@plt" if old.endswith("@plt") else new
            for new, old in zip(found, names, strict=True)
        ]

    def _tell_left_out(self, path: str) -> None:
        what = f"{os.path.basename(path)} has more debugging information than is read"
        self._tell(
            "lines_left_out",
            path,
            what,
            "build with -g1, or record less at a time",
            "some lines of its sources",
        )

    def _tell(self, code: str, about: str, what: str, remedy: str, lost: str = _NAMES) -> None:
        key = (code, about)
        if key in self._reported or len(self.problems) >= _PROBLEMS_MOST:
            return
        self._reported.add(key)
        problem = Problem(STACKS, code, what, remedy, lost)
        self.problems.append(problem)


def _nothing(count: int) -> Named:
    names = [""] * count
    files: list[str | None] = [None] * count
    lines = np.full(count, -1, np.int32)
    return Named(names, files, lines)

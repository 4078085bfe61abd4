"""Names, files and lines of code: of ELF files, of the kernel, and of code that was made while a
program ran.
"""

from __future__ import annotations

import contextlib
import os
import re
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from layerscope.host import clock
from layerscope.model.events import Problem
from layerscope.model.layers import STACKS
from layerscope.symbols import perf_map as perf_maps
from layerscope.symbols.elf_file import VDSO, Damaged, build_id, opened, vdso
from layerscope.symbols.kept import Kept
from layerscope.symbols.known_addresses import InlinedFrames, KnownAddresses, Named
from layerscope.symbols.objects import ElfObject, Identity, identity
from layerscope.symbols.short_names import printed, short

if TYPE_CHECKING:
    from layerscope.symbols.demangling import Demangler
    from layerscope.symbols.kernel_table import KernelTable

_MAY_BE_MANGLED = re.compile("_[ZR]")
_NAMES = "names of functions in it"
_PROBLEMS_MOST = 64
_OPEN_MOST = 64


class Symbols:
    """Looks addresses up, and remembers tables in the folder `cache` and in memory. Nothing in a
    file raises.

    `names_only`: for one who asks often and for little: no lines, nothing of debugging information
    (an inlined function counts for the one that it is in), and addresses are not remembered.
    `problems`: what could not be known and why, each once.
    """

    def __init__(self, cache: Path | None, names_only: bool = False) -> None:
        self.problems: list[Problem] = []
        self._names_only = names_only
        self._readable: dict[str, tuple[str, str]] = {}  # by name as the linker has it
        self._kept = Kept(cache)
        self._open: dict[str, int] = {}  # by path its descriptor
        self._let_go = weakref.finalize(self, _close, self._open)
        self._demangler: Demangler | None = None
        self._objects: dict[tuple[str, bytes], ElfObject] = {}
        self._kernel: KernelTable | None = None
        self._reported: set[tuple[str, str]] = set()
        self._of_kernel: dict[str, KnownAddresses] = {}  # by boot

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
        """End the process that demangles, and keep no file open. What was found stays usable, and
        more can be asked.
        """
        self._let_go()
        if self._demangler is not None:
            self._demangler.close()

    def keep_open(self, path: str) -> None:
        """Keep a file until `close` that may be gone when its names are asked for."""
        if len(self._open) < _OPEN_MOST and path not in self._open:
            with contextlib.suppress(OSError), opened(path) as descriptor:
                self._open[path] = os.dup(descriptor)

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
        return (
            found
            if len(back) == len(asked) and np.all(back[1:] > back[:-1])
            else _taken(found, back)
        )

    def _native(
        self, path: str, identity_asked: bytes, addresses: NDArray[np.uint64], mtime_ns: int
    ) -> Named:
        result = _nothing(len(addresses))
        if not path.startswith("/") and path != VDSO:
            return result
        if self._names_only:
            self.keep_open(path)
        try:
            with self._opened(path) as descriptor:
                known = self._object(path, identity_asked, descriptor, mtime_ns)
                if known is None:
                    return result
                return self._of_object(known, descriptor, addresses)
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

    def _opened(self, path: str) -> contextlib.AbstractContextManager[int]:
        if path in self._open:
            return contextlib.nullcontext(self._open[path])
        if path == VDSO:
            return vdso()
        return opened(path)

    def _of_object(self, known: ElfObject, descriptor: int, addresses: NDArray[np.uint64]) -> Named:
        """The names of addresses in an open file, each once; what is new is remembered."""
        if self._names_only:
            if str(known.path) in self._open:
                linked = known.tables.names(descriptor, self._kept, addresses)
            else:
                linked = known.tables.find(descriptor, self._kept, addresses).names
            return self._only_names(linked)
        remembered = known.known(self._kept)
        rows = remembered.rows_of(addresses)
        is_new = rows < 0
        if not is_new.any():
            return remembered.named(rows)
        found = known.tables.find(descriptor, self._kept, addresses[is_new])
        names = self._demangled(found.names)
        inlined = self._demangled_frames(found.inlined)
        new = Named(names, list(map(short, names)), found.files, found.lines, inlined)
        # Where the known rows and the new ones lie when they are put one behind the other.
        place = np.cumsum(np.where(is_new, 0, 1)) - 1
        place[is_new] = np.count_nonzero(~is_new) + np.arange(len(names))
        old = remembered.named(rows[~is_new])
        both = _joined(old, new)
        result = _taken(both, place)
        if known.tables.has_left_out:
            self._tell_left_out(str(known.path))
        if self._demangler is None or not self._demangler.failed:
            whole = np.flatnonzero(~found.is_limited)
            remembered.learn(addresses[is_new][whole], _taken(new, whole), found.beside)
        return result

    def _only_names(self, linked: list[str]) -> Named:
        """These names, as people read them."""
        known = self._readable
        new = [name for name in dict.fromkeys(linked) if name not in known]
        for name, whole in zip(new, self._demangled(new), strict=True):
            known[name] = whole, short(whole)
        found = _nothing(len(linked))
        names = [known[name][0] for name in linked]
        shorter = [known[name][1] for name in linked]
        return found._replace(name=names, short=shorter)

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
        asked, back = np.unique(np.asarray(addresses, np.uint64), return_inverse=True)
        boot = clock.boot()
        if boot not in self._of_kernel:
            self._of_kernel[boot] = KnownAddresses(self._kept if boot else Kept(None), f"k-{boot}")
        remembered = self._of_kernel[boot]
        rows = remembered.rows_of(asked)
        is_new = rows < 0
        if not is_new.any():
            return _taken(remembered.named(rows), back)
        names = self._kernel_names(asked)
        # Modules come and go; what is in none of them stays where it is until the next boot.
        stays = np.flatnonzero(is_new & [bool(name) and not name.endswith("]") for name in names])
        found = _nothing(len(asked))._replace(name=names, short=names)
        remembered.learn(asked[stays], _taken(found, stays))
        return _taken(found, back)

    def _kernel_names(self, addresses: NDArray[np.uint64]) -> list[str]:
        if self._kernel is None:
            from layerscope.symbols.kernel_table import KernelTable

            self._kernel = KernelTable(cache=self._kept, boot=clock.boot())
        if self._kernel.hidden:
            self._tell(
                "kernel_symbols_hidden",
                "",
                "the kernel does not report where its functions are",
                "as root: sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
                "names of functions of the kernel",
            )
        return self._kernel.names(addresses)

    def jit(self, perf_map: Path | None, addresses: NDArray[np.uint64]) -> Named:
        """Names of code that was made while the program ran, by its map /tmp/perf-PID.map; None:
        there is none.
        """
        result = _nothing(len(addresses))
        if perf_map is not None:
            try:
                names = self._demangled(perf_maps.names(perf_map, np.asarray(addresses, np.uint64)))
                result = result._replace(name=names, short=list(map(printed, names)))
            except OSError as error:
                what = f"{perf_map} cannot be read: {error.strerror}"
                self._tell(
                    "jit_map_unreadable", str(perf_map), what, f"make it readable: {perf_map}"
                )
        return result

    def _demangled(self, names: list[str]) -> list[str]:
        if not any(map(_MAY_BE_MANGLED.match, names)):
            return names
        if self._demangler is None:
            from layerscope.symbols.demangling import Demangler

            self._demangler = Demangler()
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

    def _demangled_frames(self, inlined: InlinedFrames) -> InlinedFrames:
        linked = list({frame.name: None for chain in inlined.values() for frame in chain})
        names = dict(zip(linked, self._demangled(linked), strict=True))
        shorter = {name: short(name) for name in names.values()}
        return {
            row: tuple(
                frame._replace(name=names[frame.name], short=shorter[names[frame.name]])
                for frame in chain
            )
            for row, chain in inlined.items()
        }

    def _tell_left_out(self, path: str) -> None:
        what = f"{os.path.basename(path)} has more debugging information than is read"
        self._tell(
            "lines_left_out",
            path,
            what,
            "build with -g1, or record less at a time",
            "some lines of its sources and inlined functions",
        )

    def _tell(self, code: str, about: str, what: str, remedy: str, lost: str = _NAMES) -> None:
        key = (code, about)
        if key in self._reported or len(self.problems) >= _PROBLEMS_MOST:
            return
        self._reported.add(key)
        problem = Problem(STACKS, code, what, remedy, lost)
        self.problems.append(problem)


def _close(descriptors: dict[str, int]) -> None:
    while descriptors:
        descriptor = descriptors.popitem()[1]
        os.close(descriptor)


def _nothing(count: int) -> Named:
    names = [""] * count
    short_names = [""] * count
    files: list[str | None] = [None] * count
    lines = np.full(count, -1, np.int32)
    return Named(names, short_names, files, lines)


def _joined(one: Named, other: Named) -> Named:
    return Named(
        one.name + other.name,
        one.short + other.short,
        one.file + other.file,
        np.concatenate([one.line, other.line]),
        {**one.inlined, **{len(one.name) + row: chain for row, chain in other.inlined.items()}},
    )


def _taken(found: Named, rows: NDArray[np.int64]) -> Named:
    """Some rows, in this order."""
    at = rows.tolist()
    names = [found.name[row] for row in at]
    short_names = [found.short[row] for row in at]
    files = [found.file[row] for row in at]
    lines = found.line[rows]
    known = found.inlined
    inlined = {place: known[row] for place, row in enumerate(at) if row in known} if known else {}
    return Named(names, short_names, files, lines, inlined)

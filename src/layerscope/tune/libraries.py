"""Which libraries the program has, which could be put in front of them, and whether that may be
done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from layerscope.host import elf
from layerscope.tune.setting import TuneContext

# Where Debian, RHEL and builds by hand put libraries; the first has the name of the architecture
# (Debian's multiarch).
_SYSTEM = (
    "/usr/lib/{machine}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
)
_MULTIARCH = {"ppc64le": "powerpc64le"}
_ALLOCATORS = ("libtcmalloc", "libjemalloc", "libmimalloc")
_OPENMP = ("libgomp", "libiomp5", "libomp")
# They ask for threads by OMP_NUM_THREADS too where nothing of their own is set.
_READ_OMP = (*_OPENMP, "libopenblas", "libscipy_openblas", "libmkl", "libblis", "libtorch_cpu")
_SANITIZERS = ("libasan", "libtsan", "liblsan", "libhwasan", "libclang_rt")


def has(place: TuneContext, *stems: str) -> bool | None:
    """Whether the program mapped a library whose file name begins with one of `stems`; None where
    that is not known.
    """
    if not place.libraries:
        return None
    return any(Path(library).name.startswith(stems) for library in place.libraries)


def has_openmp(place: TuneContext) -> bool | None:
    """Whether it has a runtime of OpenMP."""
    return has(place, *_OPENMP)


def reads_omp_threads(place: TuneContext) -> bool | None:
    """Whether anything in it takes its number of threads from OMP_NUM_THREADS."""
    return has(place, *_READ_OMP)


def allocator(place: TuneContext) -> str:
    """The allocator that stands in front of the C library's: the beginning of its file name, empty
    for none.
    """
    preload = place.environment.get("LD_PRELOAD", "")
    preloaded = preload.replace(":", " ").split()
    names = [Path(library).name for library in (*preloaded, *place.libraries)]
    for stem in _ALLOCATORS:
        if any(name.startswith(stem) for name in names):
            return stem
    return ""


def uses_glibc(place: TuneContext) -> bool:
    """Whether the C library that it is linked with is the GNU one, as far as its file says."""
    executable = _executable(place)
    if executable is None or not executable.dynamic:
        return False
    return "musl" not in executable.interpreter


def glibc_version() -> tuple[int, ...]:
    """Of the C library here; empty where it is another one. Programs in the same file system have
    the same.
    """
    try:
        words = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (OSError, ValueError):
        return ()
    return tuple(int(part) for part in words[-1].split(".") if part.isdigit()) if words else ()


def no_preload(place: TuneContext) -> str:
    """Why no library may be put in front of those of the program; empty where one may."""
    executable = _executable(place)
    if executable is None or executable.kind != "elf":
        return f"it is not known what kind of program {place.program[0]} is"
    if executable.privilege:
        return f"{executable.path} is {executable.privilege}: the loader does not preload into it"
    if executable.sanitizer or has(place, *_SANITIZERS):
        return (
            f"{executable.path} is built with {executable.sanitizer or 'a sanitizer'}, which "
            "has to be the first"
        )
    return (
        ""
        if executable.dynamic
        else f"{executable.path} is linked statically: nothing can be preloaded"
    )


def find(place: TuneContext, names: Sequence[str], more: Sequence[str] = ()) -> str | None:
    """The first library of one of these names that the program could load, by the order of folders;
    None for none.

    `names` may end in `*`. `more`: folders that are looked into last.
    """
    executable = _executable(place)
    for folder in (*_folders(place), *map(Path, more)):
        for name in names:
            for path in sorted(folder.glob(name)):
                # A space or a colon would end its name in LD_PRELOAD.
                if (
                    executable
                    and not set(" :\t\n") & set(str(path))
                    and _goes_with(path, executable)
                ):
                    return str(path)
    return None


def command(place: TuneContext, name: str) -> str | None:
    """Where the command `name` is, None where there is none: numactl, taskset."""
    folders = place.environment.get("PATH")
    return shutil.which(name, path=folders)


def _goes_with(path: Path, executable: elf.Executable) -> bool:
    found = elf.facts(path)
    if found.kind != "elf" or found.machine != executable.machine:
        return False
    return found.bits == executable.bits


def _folders(place: TuneContext) -> Iterator[Path]:
    """Those of the program come first: its environment's, then the system's."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if place.environment.get(variable):
            yield Path(place.environment[variable], "lib")
    program = command(place, place.program[0])
    if program:
        yield Path(program).absolute().parent.parent / "lib"
        yield Path(program).resolve().parent.parent / "lib"
    yield from (
        Path(word) for word in place.environment.get("LD_LIBRARY_PATH", "").split(":") if word
    )
    machine = place.machine.cpu.machine
    yield from (Path(folder.format(machine=_MULTIARCH.get(machine, machine))) for folder in _SYSTEM)


def _executable(place: TuneContext) -> elf.Executable | None:
    program = place.program[0]
    folders = place.environment.get("PATH")
    return elf.find(program, folders)

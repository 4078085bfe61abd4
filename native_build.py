"""Compiles what runs inside the profiled program, and the library for programs in C; part of
dev.py.

Python's standard library alone, on any Python from 3.8 on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterator, List, NamedTuple

CFLAGS = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden"]
# Exceptions of C++ pass through functions that a framework calls instead of its own.
CFLAGS += ["-fasynchronous-unwind-tables"]

NO_COMPILER = (
    "no working C compiler (tried cc, gcc, clang, zig and the Python package ziglang), so only "
    "windows of the "
    "framework's own profiler are recorded. Remedy: install gcc with the system's package manager, "
    "or without root: .envs/tool/bin/pip install ziglang; then run this again"
)


class Failure(Exception):
    """Something that cannot be got past; the sentence names the remedy."""


class NoCompiler(Failure):
    """There is no C compiler; everything but the native part goes on."""


class Build(NamedTuple):
    """One build: the sources below `sources`, what is made of them in `out`, and how to say what is
    done.

    `python` may have the package ziglang; `cache` is where zig keeps what it compiled.
    """

    sources: Path
    out: Path
    python: str
    cache: Path
    say: Callable[[str], None]


class Part(NamedTuple):
    """One file that is made: of all C files in `folders`, the first of which gives it its name in
    messages.

    What ends in .c is one file.
    """

    folders: List[str]
    target: str
    options: List[str]
    libraries: List[str]


VISIBLE = "liblayerscope.map"
TABLES = "liblayerscope-tables.so"
TRACES = "liblayerscope-traces.so"
DRAINING = "liblayerscope-draining.so"
PYTHON_FRAMES = "stacks/python_frames.c"
LOCATION_TABLE = "agent/location_table.c"
# A function that a signal handler is the first to call would be looked up there, which may take a
# lock.
AT_ONCE = ["-Wl,-z,now"]


def parts(sources: Path) -> list[Part]:
    """What is compiled: the agent, what loads it into programs in C++, the probe, the sampler, what
    the drainer does with rings, the passes over columns of the conversion, the scan of traces, and
    the library for programs in C that has the agent inside.
    """
    # Its thread and its threads' ends are code of the library: it stays where it is when a plug-in
    # that has it goes.
    interface = [
        "-shared",
        f"-Wl,--version-script={sources / 'interface' / VISIBLE}",
        "-Wl,-z,nodelete",
        *AT_ONCE,
    ]
    adapters = sorted(place.name for place in (sources / "frameworks").glob("*/"))
    frameworks = ["frameworks", *(f"frameworks/{name}" for name in adapters)]
    return [
        Part(
            ["agent", *frameworks, PYTHON_FRAMES],
            "liblayerscope-agent.so",
            ["-shared", *AT_ONCE],
            ["-ldl", "-lpthread"],
        ),
        Part(["preload"], "liblayerscope-preload.so", ["-shared", *AT_ONCE], ["-ldl"]),
        Part(["frameworks/torch/probe"], "layerscope-probe", [], ["-ldl"]),
        Part(
            ["interface", "agent", *frameworks, "chunks", PYTHON_FRAMES],
            "liblayerscope.so",
            interface,
            ["-ldl", "-lpthread"],
        ),
        Part(
            ["sampler", "stacks", "chunks", LOCATION_TABLE],
            "layerscope-sampler",
            [],
            ["-lpthread"],
        ),
        Part(["draining", "chunks"], DRAINING, ["-shared"], []),
        Part(["tables"], TABLES, ["-shared"], []),
        Part(["traces"], TRACES, ["-shared"], []),
        Part(["unwinding", "stacks"], "liblayerscope-unwinding.so", ["-shared", *AT_ONCE], []),
    ]


def compilers(tool_python: str) -> Iterator[list[str]]:
    """The commands that may compile C here, in the order of preference."""
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            yield [name]
    if shutil.which("zig"):
        yield ["zig", "cc"]
    if not subprocess.run(
        [tool_python, "-c", "import ziglang"], capture_output=True, check=False
    ).returncode:
        yield [tool_python, "-m", "ziglang", "cc"]


def compiler_environment(cache: Path) -> dict[str, str]:
    """zig keeps its cache in HOME unless told otherwise, and HOME may be unset or read-only."""
    return {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache), **os.environ}


def find_compiler(tool_python: str, cache: Path) -> list[str]:
    """The first compiler that compiles: one without the system's headers is not enough."""
    environment = compiler_environment(cache)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "try.c"
        source.write_text(
            "#include <dlfcn.h>\n#include <pthread.h>\nint two(void) { return 2; }\n",
            encoding="utf-8",
        )
        for compiler in compilers(tool_python):
            command = [
                *compiler,
                "-shared",
                "-fPIC",
                "-o",
                f"{folder}/try.so",
                str(source),
                "-ldl",
                "-lpthread",
            ]
            if not subprocess.run(
                command, capture_output=True, check=False, env=environment
            ).returncode:
                return compiler
    raise NoCompiler(NO_COMPILER)


def is_current(target: Path, sources: list[Path]) -> bool:
    """Whether `target` is newer than all that it is made of."""
    return target.exists() and all(
        source.stat().st_mtime <= target.stat().st_mtime for source in sources
    )


def compile_native(build: Build, strict: bool = True) -> None:
    """Compiles every part of which a source is newer, and puts headers and the source of shapes
    beside them.
    """
    # A warning that only somebody's newer compiler knows must not take their operators away.
    flags = [flag for flag in CFLAGS if strict or flag != "-Werror"]
    everywhere = sorted(build.sources.rglob("*.h"))
    compiler: list[str] = []
    for part in parts(build.sources):
        folders = [build.sources / folder for folder in part.folders]
        files = [
            file
            for place in folders
            for file in ([place] if place.suffix else sorted(place.glob("*.c")))
        ]
        needed = [*files, *everywhere, *folders[0].glob("*.map")]
        if not (folders[0].is_dir() and files) or is_current(build.out / part.target, needed):
            continue
        build.out.mkdir(exist_ok=True)
        try:
            compiler = compiler or find_compiler(build.python, build.cache)
            compile_part(build, part, [*compiler, *flags], files)
        except Failure:
            # Of older sources: its records might no longer be what we read.
            (build.out / part.target).unlink(missing_ok=True)
            raise
    place_sources(build)


def compile_part(build: Build, part: Part, compiler: list[str], files: list[Path]) -> None:
    """Compiles `files` into one file, by rename: a program that runs now has the old one mapped."""
    where = build.sources / part.folders[0]
    unfinished = build.out / f"{part.target}.{os.getpid()}"
    name = " ".join(word for word in compiler if not word.startswith("-"))
    build.say(f"compiling native/{where.name} with {name}")
    failed = f"native/{where.name} does not compile with {name} (its words are above)"
    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        objects = list(at_once.map(lambda file: compile_object(build, compiler, file), files))
    if not all(objects):
        raise Failure(failed)
    link = [*compiler, *part.options, "-o", str(unfinished), *map(str, objects), *part.libraries]
    environment = compiler_environment(build.cache)
    if subprocess.run(link, stdout=2, check=False, env=environment).returncode:
        unfinished.unlink(missing_ok=True)
        raise Failure(failed)
    unfinished.replace(build.out / part.target)


def compile_object(build: Build, compiler: list[str], file: Path) -> Path | None:
    """The object of one C file; None where it does not compile. Agent and library have many files
    in common, so an object whose text after the preprocessor is known is not compiled again.
    """
    command = [*compiler, "-I", str(build.sources)]
    environment = compiler_environment(build.cache)
    text = subprocess.run(
        [*command, "-E", str(file)], stdout=subprocess.PIPE, check=False, env=environment
    )
    if text.returncode:
        return None
    known_by = hashlib.sha256(" ".join(compiler).encode() + text.stdout).hexdigest()
    folder = build.cache.with_name("objects")
    made = folder / f"{file.stem}-{known_by[:32]}.o"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = made.with_suffix(f".{os.getpid()}")
    compiled = subprocess.run(
        [*command, "-c", "-o", str(unfinished), str(file)], stdout=2, check=False, env=environment
    )
    if compiled.returncode:
        unfinished.unlink(missing_ok=True)
        return None
    unfinished.replace(made)
    return made


def place_sources(build: Build) -> None:
    """What is compiled where it is used: the source of shapes against that torch, the headers by
    programs in C.
    """
    for source in (build.sources / "frameworks").glob("*/*.cpp"):
        shutil.copyfile(source, build.out / source.name)
    headers = sorted((build.sources / "include").glob("*"))
    if headers:
        (build.out / "include").mkdir(exist_ok=True)
    for header in headers:
        shutil.copyfile(header, build.out / "include" / header.name)

"""Compiles what the tests of the agent need: a stand-in for torch, and programs with the agent
inside.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NATIVE = ROOT / "native"
OBJECTS = ROOT / ".envs" / "objects"
AGENT_SOURCES = [
    *sorted((NATIVE / "agent").glob("*.c")),
    *sorted((NATIVE / "frameworks").glob("*.c")),
    *sorted((NATIVE / "frameworks").glob("*/*.c")),
    NATIVE / "stacks" / "python_frames.c",
]
FAKE_TORCH = ROOT / "tests" / "native" / "fake_torch.c"
MODULES_DRIVER = ROOT / "tests" / "native" / "modules_driver.c"
DRIVER = ROOT / "tests" / "native" / "driver.c"


def compiler() -> str:
    """A C compiler; the test is skipped where there is none."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    pytest.skip("there is no C compiler (tried cc, gcc, clang)")


def build(target: Path, sources: list[Path], *flags: str) -> Path:
    """Compile `sources` into `target`."""
    of_linker = ("-l", "-L", "-Wl,", "-shared", "-rdynamic")
    compiling = [
        compiler(),
        "-std=gnu11",
        "-I",
        str(NATIVE),
        *(flag for flag in flags if not flag.startswith(of_linker)),
    ]
    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        parts = list(at_once.map(lambda source: compiled(source, compiling), sources))
    run([compiler(), *flags, "-o", str(target), *map(str, parts), "-ldl", "-lpthread"])
    return target


def compiled(source: Path, command: Sequence[str]) -> Path:
    """The object of a source; the same text is compiled once for all tests. What is not C goes to
    the linker.
    """
    if source.suffix != ".c":
        return source
    # Files of the repository stay what they are while tests run.
    find = _known_object if source.is_relative_to(ROOT) else _object
    return find(source, tuple(command))


def _object(source: Path, command: tuple[str, ...]) -> Path:
    told = " ".join(_after_preprocessing(command))
    known_by = sha256(told.encode() + run([*command, "-E", str(source)]))
    made = OBJECTS / f"{source.stem}-{known_by.hexdigest()[:32]}.o"
    OBJECTS.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(made):
        if not made.exists():
            unfinished = made.with_suffix(".unfinished")
            run([*command, "-c", "-o", str(unfinished), str(source)])
            unfinished.replace(made)
    return made


_known_object = cache(_object)


def _after_preprocessing(command: Sequence[str]) -> list[str]:
    """The options without those that only say what the compiler's text is."""
    takes_a_folder = ("-I", "-isystem")
    pairs = zip(("", *command), command, strict=False)
    return [
        word
        for before, word in pairs
        if before not in takes_a_folder and word not in takes_a_folder and not word.startswith("-D")
    ]


@contextmanager
def _one_at_a_time(made: Path) -> Iterator[None]:
    """Who comes second, in this process or in another one, waits for the first."""
    with made.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: list[str]) -> bytes:
    """What a compiler prints; the test fails with its words."""
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def build_driver(folder: Path, *flags: str, driver: Path = DRIVER) -> Path:
    """A driver, the agent and the stand-in for torch as one program."""
    strict = ("-O2", "-Wall", "-Wextra", "-Werror")
    return build_with_agent(folder / "driver", [driver, FAKE_TORCH], *strict, *flags)


def build_with_agent(target: Path, sources: list[Path], *flags: str) -> Path:
    """A program with the agent inside, all of it compiled in the same way."""
    return build(target, [*sources, *AGENT_SOURCES], "-g", "-rdynamic", *flags)


def sanitizer_flag(folder: Path, sanitizer: str) -> str:
    """What a compiler is told; the test is skipped where it does not have the sanitizer."""
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    flag = f"-fsanitize={sanitizer}"
    command = [compiler(), flag, "-o", str(folder / "empty"), str(empty)]
    if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip(f"{command[0]} has no {flag}")
    if subprocess.run(
        [str(folder / "empty")], capture_output=True, timeout=60, check=False
    ).returncode:
        pytest.skip(f"a program built with {flag} does not run here")
    return flag


def build_sanitized(folder: Path, sanitizer: str, driver: Path = DRIVER) -> Path:
    """A driver under a sanitizer."""
    flags = sanitized(folder, sanitizer)
    return build_with_agent(folder / "driver", [driver, FAKE_TORCH], *flags)


def sanitized(folder: Path, sanitizer: str) -> tuple[str, ...]:
    """How programs are compiled for a sanitizer: all in one way, so that each part is compiled
    once.
    """
    return ("-O1", "-fno-omit-frame-pointer", sanitizer_flag(folder, sanitizer))

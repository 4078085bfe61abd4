"""Compiles what the tests of the agent need: a stand-in for torch, and programs with the agent
inside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
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


def compiled(source: Path, command: list[str]) -> Path:
    """The object of a source; the same text is compiled once for all tests. What is not C goes to
    the linker.
    """
    if source.suffix != ".c":
        return source
    known_by = sha256(" ".join(command).encode() + run([*command, "-E", str(source)]))
    made = OBJECTS / f"{source.stem}-{known_by.hexdigest()[:32]}.o"
    if not made.exists():
        OBJECTS.mkdir(parents=True, exist_ok=True)
        unfinished = made.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        run([*command, "-c", "-o", str(unfinished), str(source)])
        unfinished.replace(made)
    return made


def run(command: list[str]) -> bytes:
    """What a compiler prints; the test fails with its words."""
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def build_driver(folder: Path, *flags: str, driver: Path = DRIVER) -> Path:
    """A driver, the agent and the stand-in for torch as one program."""
    sources = [driver, FAKE_TORCH, *AGENT_SOURCES]
    return build(folder / "driver", sources, "-O2", "-g", "-rdynamic", *flags)


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
    flag = sanitizer_flag(folder, sanitizer)
    return build_driver(folder, flag, "-fno-omit-frame-pointer", driver=driver)

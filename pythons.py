"""Finds a Python for the environments of `dev.py`, keeps these apart, and installs what Debian
lacks.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from native_build import Failure

DEBIAN = Path("/etc/debian_version")


class MissingVenv(Failure):
    """This Python cannot make environments."""


def say(sentence: str) -> None:
    """Prints a line of ours at once, in order with what the child processes print."""
    print(f"dev.py: {sentence}", file=sys.stderr, flush=True)


def python_version(python: str) -> tuple[int, int] | None:
    """Its (major, minor) if it runs and can make environments; None otherwise (pyenv's shims often
    cannot).
    """
    code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    major, minor = done.stdout.split()
    return int(major), int(minor)


def pythons_here() -> Iterator[str]:
    """The running Python, then those on PATH, in the order of preference."""
    yield sys.executable
    for name in ("python3.13", "python3.12", "python3.11", "python3.14", "python3", "python3.10"):
        path = shutil.which(name)
        if path:
            yield path


def find_python(newest_first: bool = True) -> str:
    """A Python of 3.11 or newer that can make environments; for old libraries, one of at most 3.11
    if there is one.
    """
    found = {}
    for path in pythons_here():
        if path not in found:
            found[path] = python_version(path)
            if newest_first and (found[path] or (0, 0)) >= (3, 11):
                return path
    if not newest_first:
        for path, version in found.items():
            if version in ((3, 10), (3, 11)):
                return path
        return find_python()
    if sys.version_info >= (3, 11):
        raise MissingVenv(
            f"this Python ({sys.executable}) cannot make environments: its module ensurepip is "
            "missing. "
            "Remedy on Debian and Ubuntu: apt-get install python3-venv"
        )
    raise Failure(
        "layerscope needs Python 3.11 or newer that can make environments; this is Python "
        f"{platform.python_version()}, and there is none among python3.11 to python3.14 on PATH. "
        "Remedy: install one, for example apt-get install python3.11-venv, then run this again"
    )


def install_packages(*names: str) -> bool:
    """On Debian, as root: installs what is missing, by the system's package manager; True if that
    was done.
    """
    if os.geteuid() != 0 or not shutil.which("apt-get") or not DEBIAN.exists():
        return False
    say(f"missing: apt-get install {' '.join(names)}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    install = ["apt-get", "-q", "install", "-y", "--no-install-recommends", *names]
    for command in (["apt-get", "-q", "update"], install):
        if subprocess.run(command, env=environment, check=False, stdout=sys.stderr).returncode:
            return False
    return True


@contextmanager
def lock(environment: Path) -> Iterator[None]:
    """One at a time: two of us installing into one environment would break it."""
    environment.parent.mkdir(exist_ok=True)
    with open(environment.with_name(f"{environment.name}.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def add_libraries(environment: Path, other: Path) -> None:
    """Puts the libraries of another environment after its own: a second torch would take minutes
    and a gigabyte.
    """
    for libraries in other.glob("lib/python*/site-packages"):
        own = environment / libraries.relative_to(other)
        if own.is_dir():
            (own / "other-environment.pth").write_text(f"{libraries}\n", encoding="utf-8")

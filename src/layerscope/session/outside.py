"""What /proc tells of a program that is not our child."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path


def words_of(pid: int, what: str) -> list[str]:
    """The command line (`cmdline`) or the environment (`environ`) of a process."""
    try:
        data = Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return ["program"] if what == "cmdline" else []
    return [os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0")]


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    words = words_of(pid, "environ")
    parts = (word.partition("=") for word in words)
    return {name: value for name, _, value in parts}


def raise_descriptor_limit() -> None:
    """We hold descriptors for every thread of the program."""
    with contextlib.suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

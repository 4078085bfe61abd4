"""Programs that no door of ours leads into: what is kept out of their environment, and why nothing
came from them.

The doors that are variables (INTEL_LIBITTNOTIFY64, NVTX_INJECTION64_PATH) make a program load the
agent by itself. A program that cannot bear that is left alone; one that reads none of them keeps
them, for what it starts may need them: `su`, `sudo` and many launchers are such programs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from layerscope.capture import agent
from layerscope.host import elf
from layerscope.model.events import Problem
from layerscope.model.frameworks import frameworks, titles
from layerscope.model.layers import OPERATORS

# By these a program loads a library of ours.
LOADING = (agent.ITT, agent.NVTX, agent.JIT)
_FRAMEWORKS = {framework.title for framework in frameworks() if framework.library}
_LOADED_BY = {"oneDNN", "NVTX", "ITT", *_FRAMEWORKS}
EVERYTHING = "operators, primitives, ranges, optimizer steps and loader waits"
_OWN = os.uname().machine


def spare(
    command: list[str], environment: MutableMapping[str, str], before: Mapping[str, str]
) -> list[Problem]:
    """Take what could harm the program out of its `environment`, which was `before` without us;
    says so.
    """
    executable = elf.find(command[0], environment.get("PATH"))
    if executable is None or closed(executable) is None or not executable.doors() & _LOADED_BY:
        return []
    for name in LOADING:
        if name in before:
            environment[name] = before[name]
        else:
            environment.pop(name, None)
    return [_left_alone(executable)]


def nobody_came(command: list[str], environment: Mapping[str, str]) -> Problem:
    """Why no process of the program handed anything over, as far as that is known."""
    executable = elf.find(command[0], environment.get("PATH"))
    if executable is not None and closed(executable):
        return _left_alone(executable)
    doors = executable.doors() if executable else set()
    name = _shown(command[0])
    # Many a `python` is a script that looks for one.
    if "Python" in doors or Path(name).name.startswith("python"):
        what = (
            f"no process imported {titles()} by a Python that reads PYTHONPATH ({name} did not), "
            "or used oneDNN or NVTX"
        )
        remedy = (
            "run the program with the Python that has it; python -I, -E and -S keep layerscope out"
        )
    elif linked := sorted(doors & _FRAMEWORKS):
        what = (
            f"{name} is linked with {linked[0]}, but the agent of layerscope was not loaded into it"
        )
        remedy = (
            "see whether something keeps LD_PRELOAD from it, or its folder of libraries from "
            "being read"
        )
    elif doors:
        what = f"{name} has {' and '.join(sorted(doors))} in it, but nothing was sent by them"
        remedy = (
            "see whether it computes or marks anything by them; oneDNN may be built without ITT"
        )
    else:
        what = (
            f"{name} is no Python and has no oneDNN, NVTX or ITT of its own, and nothing that it "
            "started sent anything"
        )
        used = titles(in_libraries=True)
        remedy = (
            f"start a program in C++ that uses {used} directly: layerscope run -- ./program; "
            "others can mark what they do with layerscope.h or NVTX: docs/native.md"
        )
    return Problem(OPERATORS, "no_framework", what, remedy, EVERYTHING)


def closed(executable: elf.Executable) -> tuple[str, str] | None:
    """Why nothing of ours can run inside of a program, and what to do about it; None where
    something can.
    """
    if executable.kind != "elf":
        return None
    if executable.bits != 64 or executable.machine != _OWN:
        return (
            f"is built for {executable.machine or '?'} ({executable.bits} bits)",
            f"build it for {_OWN}",
        )
    if executable.sanitizer:
        return f"is built with {executable.sanitizer}", "record a build without it"
    if executable.privilege:
        gets = (
            "has capabilities of its own"
            if executable.privilege == "capabilities"
            else f"is {executable.privilege}"
        )
        return gets, "record a copy without them, as a user who has those rights"
    if not executable.dynamic:
        return "is linked statically", "link it with shared libraries"
    if "ld-musl" in Path(executable.interpreter).name:
        return "is linked with another C library, musl", "build it with glibc"
    return None


def _left_alone(executable: elf.Executable) -> Problem:
    """That nothing of ours was loaded into a program, and why."""
    why, remedy = closed(executable) or ("", "")
    what = (
        f"{_shown(str(executable.path))} {why} and was left alone: only its counters are recorded"
    )
    return Problem(OPERATORS, "left_alone", what, remedy, f"{EVERYTHING} in it")


def _shown(name: str) -> str:
    """`name` as a file can hold it: bytes that are no UTF-8 become visible."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

"""The Python of the program that would be recorded, and what keeps layerscope out of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from layerscope.capture.shapes import python_of
from layerscope.checks.recording_check import NO, OK, RecordingCheck
from layerscope.host.frameworks import program_python
from layerscope.model.frameworks import frameworks

_ABOUT = """
import importlib.util, json, platform, sys
found = {{name: importlib.util.find_spec(name) for name in {names!r}}}
print(json.dumps({{
    "python": platform.python_version(),
    "kind": platform.python_implementation(),
    "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    "origins": {{name: spec.origin for name, spec in found.items() if spec}},
}}))
"""
_ANSWER_S = 60
# Options of Python whose value is a word of its own.
_TAKE_A_WORD = ("-W", "-X")


class ProgramPython(Struct, frozen=True):
    """The program's Python: `about` is what it says of itself; empty, and `problem` says why, where
    it does not.
    """

    python: str
    where: str
    about: dict[str, Any]
    problem: str = ""

    def origin(self, framework: str) -> str:
        """The file that it imports for this framework; empty when it has none."""
        origins = self.about.get("origins", {})
        path = origins.get(framework)
        return str(path or "")

    @property
    def version(self) -> tuple[int, ...]:
        """Of its Python, such as (3, 11)."""
        text = str(self.about.get("python", "0"))
        words = text.split(".")
        return tuple(int(word) for word in words[:2])


def find_program(words: list[str]) -> ProgramPython:
    """The Python that `layerscope run` with these words would record."""
    if not words or words[0].endswith(".py"):
        python, where = program_python(os.environ)
    else:
        python, where = python_of(words, os.environ), "as named"
    about = _ABOUT.format(names=[framework.name for framework in frameworks()])
    try:
        done = subprocess.run(
            [python, "-c", about],
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return ProgramPython(
            python, where, dict(json.loads(done.stdout.strip().rpartition("\n")[2]))
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        why = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "it did not answer as Python 3 does"
        )
        return ProgramPython(python, where, {}, why)


def program_checks(program: ProgramPython, words: list[str]) -> Iterator[RecordingCheck]:
    """The Python, and what on the command line keeps layerscope out of it."""
    if not program.about:
        remedy = "name the Python of the program: layerscope doctor -- /path/to/python"
        yield RecordingCheck(
            "python", NO, f"{program.python} ({program.where}): {program.problem}", remedy
        )
        return
    kind = "" if program.about["kind"] == "CPython" else f"{program.about['kind']} "
    yield RecordingCheck(
        "python", OK, f"{kind}{program.about['python']}, {program.python} ({program.where})"
    )
    out = keeps_us_out(words)
    if out:
        yield RecordingCheck(
            "arguments",
            NO,
            f"python -{out} does not read PYTHONPATH, through which layerscope is loaded",
            f"run the program without -{out}",
        )


def keeps_us_out(words: list[str]) -> str:
    """The option of Python among `words` that ignores PYTHONPATH: I, E or S; empty when there is
    none.
    """
    if not words or not Path(words[0]).name.startswith("python"):
        return ""
    options = iter(words[1:])
    for word in options:
        if not word.startswith("-") or word.startswith("--") or word[1:2] in ("c", "m"):
            return ""  # what follows belongs to the program
        if word in _TAKE_A_WORD:
            next(options, "")
        for letter in word[1:]:
            if letter in "IES":
                return letter
            if letter in "WXcm":
                break
    return ""

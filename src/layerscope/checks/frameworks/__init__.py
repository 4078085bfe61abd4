"""What `doctor` says of a framework: one file each, called as it is imported.

It has `check(program, refused) -> Iterator[RecordingCheck]`: what can be recorded of it in the
program's Python, where the system refuses these calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from layerscope.checks.program_python import ProgramPython
from layerscope.checks.recording_check import RecordingCheck

CheckFramework = Callable[[ProgramPython, dict[str, str]], Iterator[RecordingCheck]]


def of_framework(name: str) -> CheckFramework:
    """The check of the framework `name`; nothing is said of one that has none."""
    full = f"{__name__}.{name}"
    try:
        check: CheckFramework = importlib.import_module(full).check
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        return lambda program, refused: iter(())
    return check

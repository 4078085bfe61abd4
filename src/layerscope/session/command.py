"""What `layerscope run` is asked to run: the words as a command, and what a person calls it."""

from __future__ import annotations

import os
from pathlib import Path

from layerscope.host import frameworks
from layerscope.model.errors import RunError, UsageError

# Options of Python whose value is a word of its own.
_TAKE_A_WORD = ("-W", "-X")


def program_command(words: list[str]) -> tuple[list[str], str]:
    """What to execute for `words`, and for a bare .py file which Python was chosen."""
    if words[0] == "--":
        words = words[1:]
    if not words:
        raise UsageError("no program is named. For example: layerscope run train.py")
    if words[0] == "-m":
        if len(words) == 1:
            raise UsageError(
                "no module is named behind -m. For example: layerscope run -m package.train "
                "--epochs 3"
            )
        python, where = frameworks.program_python(os.environ)
        return [python, *words], where
    if words[0].endswith(".py"):
        if not Path(words[0]).exists():
            raise RunError(f"there is no file {words[0]}", 127)
        python, where = frameworks.program_python(os.environ)
        return [python, *words], where
    return words, ""


def program_name(command: list[str]) -> str:
    """What a person calls the program: the script a Python runs, or the command itself."""
    if Path(command[0]).name.startswith("python"):
        words = iter(command[1:])
        for word in words:
            if word == "-c":
                break
            if not word.startswith("-"):
                return word
            if word == "-m" or word in _TAKE_A_WORD:
                name = next(words, command[0])
                if word == "-m":
                    return name
    return command[0]

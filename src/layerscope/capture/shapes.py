"""Shapes of the inputs of operators: what reads them in the program, where a framework has it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from layerscope.capture.adapter import CannotRead, Shapes
from layerscope.capture.frameworks import adapters
from layerscope.host.frameworks import program_python
from layerscope.model.events import Problem

CODE = "shapes_not_built"


def prepare(
    command: list[str], problems: list[Problem], say: Callable[[str], None] | None
) -> Shapes | None:
    """What reads shapes in the program that `command` starts, made now if need be. None: a problem
    says why not.
    """
    refused: list[CannotRead] = []
    for adapter in adapters():
        if adapter.prepare_shapes is None:
            continue
        try:
            return adapter.prepare_shapes(command, say)
        except CannotRead as error:
            refused.append(error)
    problems += [
        Problem("operators", CODE, str(error), error.remedy, "shapes of inputs")
        for error in refused
    ]
    return None


def python_of(command: list[str], environment: Mapping[str, str]) -> str:
    """The Python that `command` runs under, as far as its first word tells; else that of the active
    environment.
    """
    first = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    if Path(first).name.startswith("python"):
        return first
    with contextlib.suppress(OSError), open(first, "rb") as file:
        words = file.readline(1024).removeprefix(b"#!").split()
        named = os.fsdecode(words[0]) if words else ""
        if Path(named).name.startswith("python") and os.access(named, os.X_OK):
            return named
    return program_python(environment)[0]

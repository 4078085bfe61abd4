"""Modules that work while they are imported, among them one below a function."""

from __future__ import annotations

import sys
import types

import planted

CODE = """
import planted
def at_import():
    for _ in range(planted.BATCH):
        planted.compute()
at_import()
"""


def load() -> None:
    """Executes a module's code."""
    module = types.ModuleType("planted_module")
    exec(compile(CODE, sys.argv[0], "exec"), module.__dict__)


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(function="at_import", function_total="load"):
            load()
    planted.finish()


main()

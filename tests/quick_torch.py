"""Importing PyTorch takes more than a second of CPU time, and its compiler, which optimizers and its profiler import,
two: programs that are not about these begin with one of these.
"""

from __future__ import annotations

from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
# One line: those of a program that begins with an empty one keep their numbers.
QUICK = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); import quick_torch; del sys.path[0]"
WITHOUT_COMPILER = f"{QUICK}\nimport torch\n"


def quick(program: str) -> str:
    """The text of a program, which imports torch faster if it begins with an empty line and compiles
    nothing.
    """
    is_plain = program.startswith("\n") and "import torch" in program and "compile" not in program
    return QUICK + program if is_plain else program

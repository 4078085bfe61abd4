"""Importing PyTorch takes more than a second of CPU time, and its compiler, which optimizers and its profiler import,
two: programs that are not about these begin with one of these.
"""

from __future__ import annotations

from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
WITHOUT_COMPILER = """import sys, types, torch
compiler = types.SimpleNamespace(graph_break=lambda: None, disable=lambda function, *_, **__: function)
torch._dynamo = sys.modules["torch._dynamo"] = compiler
"""
# One line: those of a program that begins with an empty one keep their numbers.
QUICK = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); import quick_torch; del sys.path[0]"

# What asks for the compiler, or for modules that it is left out of.
NEED_ALL = ("compile", "transformers", "lightning")


def quick(program: str) -> str:
    """The text of a program, which imports torch faster if it begins with an empty line, or as above,
    and compiles nothing. Lines keep their numbers.
    """
    start, rest = "", program
    if program.startswith(WITHOUT_COMPILER):
        start, rest = "\nimport sys, types, torch\n", program.removeprefix(WITHOUT_COMPILER)
    elif not program.startswith("\n") or "import torch" not in program:
        return program
    needs_all = any(word in rest for word in NEED_ALL)
    return program if needs_all else QUICK + start + "\n" * bool(start) + rest

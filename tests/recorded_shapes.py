"""Records a real program with `layerscope run --shapes` for a test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.recorded import Recorded, layerscope

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))),
    reason="there is no C++ compiler (tried g++, c++, clang++)",
)


def record_with_shapes(python: str, program: str, cwd: Path, *arguments: str) -> Recorded:
    """Record `program` (its text, or the path of a file) under `python` in the folder `cwd`."""
    path = Path(program)
    if "\n" in program:
        path = cwd / "program.py"
        path.write_text(program)
    done = layerscope(
        "run", "--shapes", "-o", "recording", "--", python, str(path), *arguments, cwd=cwd
    )
    return Recorded(
        open_run(cwd / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )

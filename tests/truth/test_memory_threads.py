"""Memory on threads that Python knows and that run no code of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.building import build
from tests.recorded import ROOT, record

pytestmark = pytest.mark.slow

PROGRAM = """
import ctypes, os, sys
import torch

c10 = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
print(ctypes.CDLL(sys.argv[1]).run(c10.encode()))
"""


def test_a_thread_without_a_python_frame_allocates_at_no_line(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    source = ROOT / "tests" / "truth" / "frameless_thread.c"
    library = build(tmp_path / "frameless.so", [source], "-shared", "-fPIC")
    options = ["--layers=+memory,-stacks"]

    recorded = record(program_python, PROGRAM, tmp_path, str(library), options=options)

    assert (recorded.status, recorded.stdout) == (0, "0\n")
    (block,) = recorded.rows("SELECT line, operator, dur_ns FROM allocations WHERE bytes = 123456")
    assert (block["line"], block["operator"]) == ("", "")
    assert block["dur_ns"] is not None

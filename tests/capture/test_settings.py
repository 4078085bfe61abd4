"""What a program sets itself, before a framework reads it, and of its optimizers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recorded import ROOT, record

PROGRAM = ROOT / "tests" / "programs" / "sets_variables.py"
SETTINGS = """
    SELECT name, json FROM marks JOIN args USING (args)
    WHERE kind = 'setting' ORDER BY at_ns, name"""


@pytest.mark.slow
def test_variables_that_the_program_sets_and_its_optimizers_are_marks(
    tmp_path: Path, program_python: str, native_agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that libraries read, and no others; only where they differ from the start."""
    monkeypatch.setenv("KMP_BLOCKTIME", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")

    recorded = record(program_python, str(PROGRAM), tmp_path)

    rows = recorded.rows(SETTINGS)
    assert [(row["name"], json.loads(row["json"])["domain"]) for row in rows] == [
        ("KMP_BLOCKTIME taken away", "variable"),
        ("OMP_NUM_THREADS=1", "variable"),
        ("Adam: 2 parameters, foreach=True", "optimizer"),
        ("SGD: 1 parameters", "optimizer"),
    ]

"""Threads that could run and have no CPU are in the function that they would go on with."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.recorded import layerscope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "more_than_cpus.py"


def test_preempted_time_is_in_the_function_that_computes(
    program_python: str, tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))  # of each attempt one of its own
    done = layerscope("run", "-q", "-o", "a", "--", program_python, str(PROGRAM), cwd=folder)
    assert done.returncode == 0, done.stderr

    with Reader(open_run(folder / "a.layerscope")) as reader:
        rows = tables.build(reader, "waits", "function").data.to_pylist()
    ns = {row["function"]: row["total_ns"] for row in rows if row["state"] == "preempted"}
    assert sum(ns.values()) > 1e9
    assert ns["compute (more_than_cpus.py)"] > 0.8 * sum(ns.values())

"""Threads that are over before a period of samples is have stacks, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.recorded import Recorded, layerscope
from tests.rights import needs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "short_threads.py"
BELOW = """
    WITH RECURSIVE above(stack, ancestor) AS (
        SELECT stack, stack FROM stacks
        UNION ALL SELECT above.stack, s.parent FROM above JOIN stacks s ON s.stack = above.ancestor
        WHERE s.parent IS NOT NULL
    )
    SELECT name, sum(weight_ns)::BIGINT AS ns FROM samples JOIN above USING (stack)
      JOIN stacks s ON s.stack = above.ancestor JOIN frames USING (frame)
    WHERE samples.kind = 'cpu' AND name IN ('one', 'other') GROUP BY 1
"""


def shares(program_python: str, folder: Path, *words: str) -> dict[str, float]:
    """By function, the CPU time that stacks show over that which the program has measured."""
    command = ("run", "-q", "-o", "recording", "--", program_python, str(PROGRAM), *words)
    done = layerscope(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    used_ns = json.loads(done.stdout)
    recorded = Recorded(open_run(folder / "recording.layerscope"), 0, done.stdout, done.stderr)
    found = {row["name"]: row["ns"] for row in recorded.rows(BELOW)}
    return {name: found[name] / used_ns[name] for name in used_ns}


def test_threads_of_a_few_milliseconds_have_stacks(program_python: str, tmp_path: Path) -> None:
    found = shares(program_python, tmp_path)
    # A period is 10 ms: without more samples at the beginning of a thread half of it is not known.
    assert 0.75 < found["one"] < 1.15
    assert 0.75 < found["other"] < 1.15


def test_threads_of_a_few_milliseconds_in_the_kernel_have_stacks(
    program_python: str, tmp_path: Path
) -> None:
    needs("kernel")
    found = shares(program_python, tmp_path, "kernel")
    # Without a clock of their own that ticks sooner most of it is not known.
    assert 0.6 < found["one"] < 1.15
    assert 0.5 < found["other"] < 1.15

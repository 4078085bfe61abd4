"""Stacks of Python keep both their ends, however many calls lie between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.recorded import Recorded, layerscope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "deep_calls.py"
BELOW = """
    WITH RECURSIVE above(stack, ancestor) AS (
        SELECT stack, stack FROM stacks
        UNION ALL SELECT above.stack, s.parent FROM above JOIN stacks s ON s.stack = above.ancestor
        WHERE s.parent IS NOT NULL
    ),
    named AS (SELECT above.stack, name FROM above JOIN stacks s ON s.stack = above.ancestor
              JOIN frames USING (frame)),
    sampled AS (SELECT stack, sum(weight_ns) AS ns FROM samples WHERE kind = 'cpu' GROUP BY stack)
    SELECT ends.name, sum(ns)::BIGINT AS ns,
           sum(ns) FILTER (WHERE stack IN (SELECT stack FROM named WHERE name = 'innermost'))
               ::BIGINT AS innermost_ns,
           coalesce(sum(ns) FILTER (WHERE stack IN
               (SELECT stack FROM named WHERE name = '[frames left out]')), 0)::BIGINT AS left_out_ns
    FROM sampled JOIN (SELECT DISTINCT stack, name FROM named) ends USING (stack)
    WHERE ends.name LIKE 'from_%' GROUP BY 1
"""


def test_deep_stacks_keep_both_ends(program_python: str, tmp_path: Path) -> None:
    words = ("run", "-q", "-o", "recording", "--", program_python, str(PROGRAM))
    done = layerscope(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    used_ns = json.loads(done.stdout)
    run = open_run(tmp_path / "recording.layerscope")
    recorded = Recorded(run, done.returncode, done.stdout, done.stderr)

    found = {row["name"]: row for row in recorded.rows(BELOW)}
    assert found.keys() == used_ns.keys()
    for name, row in found.items():
        assert abs(row["ns"] / used_ns[name] - 1) < 0.15
        assert row["innermost_ns"] > 0.95 * row["ns"]
    # At least 2,000 calls are whole; of more, one frame stands for those between.
    left_out_ns = {name: row["left_out_ns"] for name, row in found.items()}
    assert left_out_ns == {"from_600": 0, "from_2000": 0, "from_6000": found["from_6000"]["ns"]}

"""The parts in which every test runs, with something that stands for pytest."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import every_test
from pythons import say

# Stands for pytest: says which part it is, and ends as planned.
PART = """
import json, sys
words = sys.argv[1:]
name = next(word for word in words if word.startswith("cache_dir=")).rpartition("/")[2]
again = "again" if "--last-failed" in words else "first"
print(name, again, *words[2:], flush=True)
sys.exit(json.loads(PLAN).get(f"{name} {again}", 0))
"""


@pytest.mark.parametrize(
    ("plan", "status", "again"),
    [
        ({}, 0, []),
        ({"parallel first": 1}, 0, ["parallel"]),
        ({"parallel first": 1, "parallel again": 1}, 1, ["parallel"]),
        ({"parallel first": 1, "alone first": 1}, 0, ["parallel", "alone"]),
        ({"parallel first": 1, "alone first": 1, "alone again": 1}, 1, ["parallel", "alone"]),
        ({"alone first": 2}, 2, []),
        ({"parallel first": 137}, 137, []),
    ],
)
def test_every_part_runs_and_what_failed_is_run_once_more(
    plan: dict[str, int],
    status: int,
    again: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = PART.replace("PLAN", repr(json.dumps(plan)))
    alone = tmp_path / "tests" / "some" / "test_alone.py"
    alone.parent.mkdir(parents=True)
    alone.write_text("pytestmark = pytest.mark.alone\n")
    alone.with_name("test_other.py").write_text("import pytest\n")

    pytest_of_ours = [sys.executable, "-c", code]
    assert every_test.run(pytest_of_ours, tmp_path, dict(os.environ), say) == status

    printed = capfd.readouterr().out.splitlines()
    assert printed[0].startswith("parallel first -n 2")
    assert printed[0].endswith("-m not alone")
    assert printed[1] == f"alone first -m alone {alone}"
    assert [line.split()[0] for line in printed[2:]] == again

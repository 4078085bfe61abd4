"""Runs every test; part of dev.py. Python's standard library alone, on any Python from 3.8 on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Callable, Dict, List

# A file's tests share what they record, so they stay together; tests/conftest.py has the slow files
# come first.
IN_PARALLEL = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
ALONE = "alone"  # a mark of tests, and the name of their part
AGAIN = ["--last-failed", "--last-failed-no-failures=none", "--maxfail=9"]
SOME_FAILED = 1  # pytest's status; others say that it could not go on


def run(
    pytest: List[str], root: Path, variables: Dict[str, str], say: Callable[[str], None]
) -> int:
    """Every test in two processes, because slow ones wait more than they compute, then those that
    need the machine for themselves. What failed runs once more, alone: what fails twice has failed,
    and what does not is named.
    """

    def run_part(name: str, options: List[str]) -> int:
        command = [*pytest, "-o", f"cache_dir=.pytest_cache/{name}", *options]
        return subprocess.run(command, cwd=root, env=variables, check=False).returncode

    parts = {
        "parallel": [*IN_PARALLEL, "-m", f"not {ALONE}"],
        ALONE: ["-m", ALONE, *files_with(root, ALONE)],
    }
    statuses = {name: run_part(name, options) for name, options in parts.items()}
    for name, status in statuses.items():
        if status == SOME_FAILED:
            say(f"running once more, alone, what failed of the part {name}")
            statuses[name] = run_part(name, AGAIN)
            if not statuses[name]:
                say(
                    f"what failed of the part {name} (named above) passed when it was alone: mend "
                    "it nevertheless"
                )
    return max(statuses.values(), key=abs)


def files_with(root: Path, mark: str) -> List[str]:
    """The files in which tests have this mark: to read all others would take long."""
    files = sorted((root / "tests").rglob("test_*.py"))
    return [
        str(file) for file in files if f"pytest.mark.{mark}" in file.read_text(encoding="utf-8")
    ]

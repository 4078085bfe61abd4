"""Time in the kernel has the stack of Python that it was spent in, in whichever way it was called.

Shares are compared within the error of sampling, as in `test_stacks.py`.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path

import pytest

from tests.attempts import once_in_three
from tests.recorded import layerscope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
SIGMAS = 4
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


@pytest.fixture(autouse=True)
def _may_look_into_the_kernel() -> None:
    if os.geteuid() and int(PARANOID.read_text()) > 1:
        pytest.skip(f"only root may look into the kernel ({PARANOID} is above 1)")


def inclusive_ns(folder: Path) -> dict[str, int]:
    """CPU time of each function of Python with what it called."""
    asked = layerscope("table", "functions", "recording", "--json", cwd=folder)
    table = json.loads(asked.stdout)
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    return {row["name"]: row["total_ns"] for row in rows}


@once_in_three  # what else the machine does takes ticks away
@pytest.mark.parametrize("program", ["kernel_callers.py", "short_calls.py"])
def test_time_in_the_kernel_stays_with_its_callers(
    program_python: str, tmp_path: Path, program: str
) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))  # of each attempt one of its own
    words = ("run", "-q", "-o", "recording", "--rate", "199", "--", program_python)
    done = layerscope(*words, str(PROGRAMS / program), cwd=folder)
    assert done.returncode == 0, done.stderr
    used_ns = json.loads(done.stdout)
    found_ns = inclusive_ns(folder)

    whole_ns = sum(used_ns.values())
    count = whole_ns / 1e9 * 199
    shares = {name: ns / whole_ns for name, ns in used_ns.items()}
    errors = {
        name: (found_ns.get(name, 0) / whole_ns - share)
        / (SIGMAS * math.sqrt(share * (1 - share) / count))
        for name, share in shares.items()
    }
    assert max(map(abs, errors.values())) < 1, (errors, shares, found_ns)
    assert found_ns.get("(function not known)", 0) < 0.02 * whole_ns

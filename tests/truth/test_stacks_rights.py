"""Programs in Python with a known answer, where the kernel tells what it does and who ends
waits.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from layerscope.symbols.kernel_table import KernelTable
from tests.attempts import once_in_three
from tests.recorded import Recorded, layerscope
from tests.rights import needs
from tests.truth.test_stacks import ABOVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "in_kernel.py"


def record(python: str, folder: Path, kind: str) -> tuple[Recorded, dict[str, Any]]:
    """Record the program, with what it says itself."""
    folder = Path(tempfile.mkdtemp(dir=folder))  # of each attempt one of its own
    done = layerscope("run", "-o", "recording", "--", python, str(PROGRAM), kind, cwd=folder)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(
        open_run(folder / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )
    assert recorded.rows("SELECT code, what FROM problems WHERE layer = 'stacks'") == []
    return recorded, json.loads(done.stdout)


def line_of(text: str) -> int:
    """The line of the program with this text."""
    return 1 + next(i for i, line in enumerate(PROGRAM.read_text().splitlines()) if text in line)


@once_in_three
def test_functions_of_the_kernel_are_below_the_line_that_asked(
    program_python: str, tmp_path: Path
) -> None:
    needs("kernel")
    if KernelTable().hidden:
        pytest.skip("the kernel does not report where its functions are (kernel.kptr_restrict)")
    recorded, used_ns = record(program_python, tmp_path, "kernel")

    def weight(python: str, kernel: str, more: str = "") -> int:
        return int(recorded.value(
            f"{ABOVE} SELECT coalesce(sum(weight_ns), 0) FROM samples WHERE kind = 'cpu' AND stack IN "
            f"(SELECT stack FROM framed WHERE layer = 'python' AND name = '{python}' {more}) AND stack IN "
            f"(SELECT stack FROM framed WHERE layer = 'kernel' AND name LIKE '{kernel}')"
        ) or 0)  # fmt: skip

    assert weight("random_bytes", "entry_SYSCALL_64%") > 0.5 * used_ns["random_bytes"]
    faulting = f"AND line = {line_of('# the line that faults')}"
    assert weight("fault", "%page_fault%", faulting) > 0.3 * used_ns["fault"]
    # The two take turns, and each has its own: no sample of the one that ran next stands for what
    # was before.
    assert weight("fault", "%getrandom%") < 0.05 * used_ns["random_bytes"]
    assert weight("random_bytes", "%page_fault%") < 0.05 * used_ns["fault"]


@once_in_three
def test_who_ends_a_wait_is_told_with_its_line(program_python: str, tmp_path: Path) -> None:
    needs("wakers")
    recorded, told = record(program_python, tmp_path, "queue")

    with Reader(recorded.run) as reader:
        rows = tables.build(reader, "waits", "line").data.to_pylist()
        by_waker = tables.build(reader, "waits", "waker").data.to_pylist()
    line = line_of("# the line that locks")
    (row,) = [row for row in rows if row["line"].endswith(f"in_kernel.py:{line}")]
    assert row["waker"].endswith(f" {told['holder']}")
    # `Queue.get` waits for a condition in the library; who puts into it is the thread that ends
    # that.
    ended = {
        row["waker"].split()[-1]: row["total_ns"]
        for row in by_waker
        if row["waker"] and row["state"] != "idle"
    }
    for waker in ("producer", "holder"):
        assert ended[str(told[waker])] > 0.4 * 12 * 50e6

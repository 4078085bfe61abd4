"""How long a thread has not run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layerscope.host.last_ran import LastRan

STAT = "(a name) of (threads)) S " + " ".join(map(str, range(4, 60)))


def machine(root: Path, cpu: int, last_ms: str, now_ms: str) -> Path:
    """Process 7 that was last on `cpu` at a moment of its clock, and what that says to us."""
    fields = STAT.split()
    fields[-56 + 35] = str(cpu)
    for place, text in (
        ("7/task/7/stat", "7 " + " ".join(fields)),
        ("7/task/7/sched", f"name (7, #threads: 1)\n---\nse.exec_start   :   {last_ms}\nx : 1\n"),
        ("thread-self/sched", f"us (1, #threads: 1)\n---\nse.exec_start : {now_ms}\n"),
    ):
        path = root / "proc" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_it_is_the_time_since_it_was_last_accounted_for(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    with LastRan(machine(tmp_path, cpu, "1000.250000", "3500.500000")) as last_ran:
        assert last_ran.since_ns(7, 7) == 2_500_250_000


def test_a_clock_that_is_behind_gives_nothing_negative(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    with LastRan(machine(tmp_path, cpu, "4000.0", "3500.5")) as last_ran:
        assert last_ran.since_ns(7, 7) == 0


@pytest.mark.parametrize(("last_ms", "now_ms"), [("?", "1"), ("1", "?")])
def test_what_a_kernel_does_not_tell_is_not_known(
    last_ms: str, now_ms: str, tmp_path: Path
) -> None:
    cpu = min(os.sched_getaffinity(0))
    with LastRan(machine(tmp_path, cpu, last_ms, now_ms)) as last_ran:
        assert last_ran.since_ns(7, 7) is None
        assert last_ran.since_ns(8, 8) is None


def test_a_cpu_that_we_may_not_use_is_not_asked(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with LastRan(machine(tmp_path, 8191, "1000.0", "3500.0")) as last_ran:
        assert last_ran.since_ns(7, 7) is None
    assert os.sched_getaffinity(0) == before


def test_afterwards_we_may_run_where_we_could_before(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with LastRan() as last_ran:
        last_ran.since_ns(os.getpid(), os.getpid())
    assert os.sched_getaffinity(0) == before

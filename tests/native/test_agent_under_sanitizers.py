"""The agent built with the compiler's own checkers, driven through everything that is out of
order.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from layerscope.ingest.conversion import RunConversion
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.sources.raw.folder import RawRecording
from tests.native.building import build_sanitized
from tests.native.door import Door
from tests.recordings import run_info
from tests.repeated import also, first, times

OPTIONS = {
    # Leaks: what the agent maps is meant to stay, and the checker for them needs ptrace.
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:abort_on_error=0:exitcode=66",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=66:second_deadlock_stack=1",
}


def driven(
    driver: Path, folder: Path, mode: str, threads: int, count: int, seed: int
) -> tuple[int, int, Run]:
    """Drive it, which says nothing on stderr: its process, how much it began and ended, and the
    recording.
    """
    door = Door(folder / "raw")
    process = subprocess.Popen(
        [str(driver), door.name, mode, str(threads), str(count), str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **OPTIONS},
    )  # fmt: skip
    stdout, stderr = process.communicate(timeout=240)
    door.close()
    assert (process.returncode, stderr[:6000]) == (0, "")
    begun, ended = [int(word) for word in stdout.splitlines()[1].split()]
    assert begun == ended
    run = Run.create(folder / "driven.layerscope", run_info())
    RunConversion(RawRecording(door.raw), run.tables_path).finish({})
    return process.pid, begun, run


def chaos(
    driver: Path, folder: Path, threads: int, count: int, seed: int, mode: str = "chaos"
) -> None:
    """Drive it; nothing may be said on stderr, and every span must be recorded or counted.

    With `mode` "windows" only some of them are recorded.
    """
    pid, begun, run = driven(driver, folder, mode, threads, count, seed)
    with Reader(run) as reader:
        (row,) = reader.query(
            "SELECT (SELECT count(*) FROM spans JOIN tracks USING (track) JOIN processes USING (process) "
            f"WHERE pid = {pid}) AS recorded, "
            "(SELECT coalesce(sum(lost), 0)::BIGINT FROM gaps JOIN processes USING (process) "
            f"WHERE pid = {pid}) AS lost, "
            "(SELECT count(*) FROM spans WHERE unfinished) AS unfinished, "
            "(SELECT count(*) FROM spans c JOIN spans p ON p.span = c.parent WHERE p.track <> c.track "
            # Not: that the parent had not ended. Between the end that another thread reads off its
            # clock and the moment it closes the slot, the owner may open one more span in it.
            "OR p.depth <> c.depth - 1 OR p.start_ns > c.start_ns) AS wrong"
        ).to_pylist()
    row["recorded"] += row.pop("lost")
    if mode == "windows":
        assert 0 < row["recorded"] < begun
        begun = row["recorded"]
    assert row == {"recorded": begun, "unfinished": 0, "wrong": 0}


@pytest.mark.stress
def test_chaos_is_recorded_or_counted(driver: Path, tmp_path: Path) -> None:
    chaos(driver, tmp_path, 4, 30_000, 1)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(2, 8))
def test_more_chaos_is_recorded_or_counted(driver: Path, tmp_path: Path, seed: int) -> None:
    chaos(driver, tmp_path, 8, 200_000, seed)


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", *also(["address,undefined"])])
def test_chaos_under_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    driver = build_sanitized(tmp_path, sanitizer)
    for seed in first(1, (11, 12)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        chaos(driver, folder, 4, times(30_000, 15_000), seed)


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", *also(["thread"])])
@pytest.mark.parametrize("seed", [13, *also([14])])
def test_chaos_in_windows_under_a_sanitizer(tmp_path: Path, sanitizer: str, seed: int) -> None:
    chaos(
        build_sanitized(tmp_path, sanitizer), tmp_path, 4, times(100_000, 15_000), seed, "windows"
    )


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", *also(["address,undefined"])])
def test_blocks_that_any_thread_releases_are_paired_under_a_sanitizer(
    tmp_path: Path, sanitizer: str
) -> None:
    """The C library gives an address out again as soon as it has it back."""
    driver = build_sanitized(tmp_path, sanitizer)
    _, begun, run = driven(driver, tmp_path, "memory", 4, times(12_000, 6_000), 5)
    with Reader(run) as reader:
        (row,) = reader.query(
            "SELECT count(*) AS blocks, count(dur_ns) AS ended, count(DISTINCT track) AS threads, "
            "count(*) FILTER (phase = 'backward') > 0 AS has_phases, (SELECT count(*) FROM gaps) AS gaps "
            "FROM allocations"
        ).to_pylist()
    assert row == {"blocks": begun, "ended": begun, "threads": 4, "has_phases": True, "gaps": 0}

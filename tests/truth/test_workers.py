"""The operators of processes that come and go: loader workers, forked and short-lived ones, each to
the last count.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential import PROGRAMS
from tests.recorded import Recorded, record
from tests.repeated import also

pytestmark = pytest.mark.slow
ITEMS, EPOCHS = 64, 2
PER_PROCESS = (
    "SELECT process, count(*) AS n FROM spans JOIN tracks USING (track) "
    "WHERE spans.name = 'aten::{name}' AND NOT unfinished GROUP BY process ORDER BY n, process"
)


@pytest.fixture
def python(native_agent: Path, program_python: str) -> str:
    return program_python


def run(python: str, folder: Path, name: str, *arguments: str) -> Recorded:
    return record(python, str(PROGRAMS / name), folder, *arguments)


def per_process(recorded: Recorded, name: str = "hypot") -> list[int]:
    """How many finished operators of this name each process has that has any."""
    return [row["n"] for row in recorded.rows(PER_PROCESS.format(name=name))]


def check_nothing_is_lost(recorded: Recorded) -> None:
    assert recorded.rows("SELECT * FROM gaps") == []
    assert recorded.rows("SELECT * FROM problems") == []


@pytest.mark.parametrize("start", ["fork", "spawn", *also(["forkserver"])])
def test_every_operator_of_a_loaders_workers_is_there(
    start: str, python: str, tmp_path: Path
) -> None:
    recorded = run(python, tmp_path, "workers.py", start, "plain")

    assert (recorded.status, recorded.stdout) == (0, "32 batches\n")
    assert per_process(recorded) == [ITEMS // 2] * 2 * EPOCHS
    check_nothing_is_lost(recorded)


def test_workers_that_stay_are_two_processes(python: str, tmp_path: Path) -> None:
    recorded = run(python, tmp_path, "workers.py", "fork", "persistent")

    assert (recorded.status, recorded.stdout) == (0, "32 batches\n")
    assert per_process(recorded) == [ITEMS // 2 * EPOCHS] * 2
    check_nothing_is_lost(recorded)


def test_operators_of_workers_that_are_killed_appear(python: str, tmp_path: Path) -> None:
    recorded = run(python, tmp_path, "workers.py", "fork", "killed")

    assert (recorded.status, recorded.stdout) == (0, "32 batches\n")
    assert per_process(recorded) == [ITEMS // 2 * EPOCHS] * 2
    check_nothing_is_lost(recorded)


def test_a_worker_that_crashes_leaves_what_it_did(python: str, tmp_path: Path) -> None:
    recorded = run(python, tmp_path, "workers.py", "fork", "crash")

    assert recorded.status == 0, recorded.stderr
    assert recorded.stdout.startswith("DataLoader worker\n")
    # Batches of four in turns: the second worker takes items 4 to 7, 12 to 15, and 20, and dies at
    # 21.
    crashed, other = per_process(recorded)
    assert crashed == 9
    assert other >= 8
    check_nothing_is_lost(recorded)


def test_a_worker_that_hangs_keeps_nobody(python: str, tmp_path: Path) -> None:
    recorded = run(python, tmp_path, "workers.py", "fork", "hang")

    assert recorded.status == 0, recorded.stderr
    assert recorded.stdout.startswith("DataLoader timed out after 3 seconds")
    hung, other = per_process(recorded)
    assert hung == 9
    assert other >= 8
    ends = recorded.value("SELECT count(*) FROM processes WHERE end_ns IS NULL")
    assert ends <= 1
    assert recorded.run.info.program.wall_ns < 15e9  # it hangs for 20 s


@pytest.mark.parametrize("start", ["fork", *also(["spawn"])])
def test_every_operator_of_a_pool_that_is_terminated_is_there(
    start: str, python: str, tmp_path: Path
) -> None:
    recorded = run(python, tmp_path, "pool.py", start)

    assert (recorded.status, recorded.stdout) == (0, "[0, 1, 2, 3, 4, 5, 6, 7]\n")
    assert sum(per_process(recorded)) == 40
    assert 1 <= len(per_process(recorded)) <= 2
    check_nothing_is_lost(recorded)


def test_the_processes_of_a_loader_are_known_by_what_they_are_for(
    python: str, tmp_path: Path
) -> None:
    from layerscope.analyse import tables
    from layerscope.recording.reader import Reader

    recorded = run(python, tmp_path, "workers.py", "fork", "plain")

    with Reader(recorded.run) as reader:
        rows = tables.build(reader, "processes").data.to_pylist()
    assert [row["role"] for row in rows] == ["program"] + ["loader worker"] * 4
    assert {row["ppid"] for row in rows[1:]} == {rows[0]["pid"]}
    assert {row["rank"] for row in rows} == {None}


@pytest.mark.stress
def test_a_thousand_short_processes_are_all_there(python: str, tmp_path: Path) -> None:
    recorded = run(python, tmp_path, "short_processes.py", "1000", "3")

    assert (recorded.status, recorded.stdout) == (0, "1000 children, 0 bad\n")
    assert per_process(recorded) == [1] + [3] * 1000
    check_nothing_is_lost(recorded)
    assert recorded.value("SELECT count(*) FROM processes WHERE end_ns IS NULL") == 0
    assert recorded.value("SELECT count(DISTINCT ppid) FROM processes") == 2


def test_a_fork_in_a_thread_and_in_a_range_leaves_both_whole(python: str, tmp_path: Path) -> None:
    recorded = run(python, tmp_path, "forks_in_thread.py")

    assert recorded.status == 0, recorded.stderr
    assert per_process(recorded) == [int(recorded.stdout)]
    assert per_process(recorded, "logaddexp") == [8] * 10 + [20]
    ranges = recorded.rows(
        "SELECT process FROM spans JOIN tracks USING (track) WHERE spans.name = 'around the fork'"
    )
    assert len(ranges) == 10
    assert len({row["process"] for row in ranges}) == 1
    check_nothing_is_lost(recorded)

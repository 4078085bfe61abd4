"""The agent at full speed on several threads, drained by the real drainer: what it lost it counted,
what it recorded is right. The driver numbers its operators, so that the truth is known for millions
of them.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from layerscope.ingest.conversion import RunConversion
from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.sources.raw.folder import RawRecording
from tests.native.door import Door
from tests.recordings import run_info
from tests.repeated import also

# As in driver.c: the depth of each span of the tree, and how many spans before it its parent
# started.
DEPTHS = np.array([0, 1, 2, 2, 3, 1, 2, 3, 3, 2])
TO_PARENT = np.array([0, 1, 1, 2, 1, 5, 1, 1, 2, 4])
TIMEOUT_S = 240


def start(
    driver: Path, door: Door, mode: str, threads: int, count: int, more: int
) -> subprocess.Popen[str]:
    command = [str(driver), door.name, mode, str(threads), str(count), str(more)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def converted(door: Door, folder: Path) -> Run:
    run = Run.create(folder / "load.layerscope", run_info())
    RunConversion(RawRecording(door.raw), run.tables_path).finish({})
    return run


def lost(reader: Reader) -> int:
    return int(reader.query("SELECT coalesce(sum(lost), 0)::BIGINT AS n FROM gaps")["n"][0].as_py())


def check_tree(reader: Reader) -> None:
    """Every span has its depth, and the parent that the driver gave it, or none if that one was
    lost.
    """
    spans = reader.arrays(
        "spans", ["span", "track", "parent", "depth", "sequence", "dur_ns", "self_ns"]
    )
    seq, track = spans["sequence"].astype(np.int64), spans["track"].astype(np.int64)
    assert (spans["depth"] == DEPTHS[seq % 10]).all()
    place = track << 32 | seq
    assert len(np.unique(place)) == len(place)
    by_place = np.argsort(place)
    wanted = place - TO_PARENT[seq % 10]
    at = np.minimum(np.searchsorted(place, wanted, sorter=by_place), len(place) - 1)
    is_there = (place[by_place][at] == wanted) & (spans["depth"] > 0)
    truth = np.where(is_there, spans["span"][by_place][at], -1)
    wrong = (spans["parent"] != truth) & (spans["parent"] != -1)
    assert not wrong.any(), f"{wrong.sum()} spans have a wrong parent"
    orphans = (spans["parent"] == -1) & (truth != -1)
    assert not orphans.any(), f"{orphans.sum()} spans lack a parent that was recorded"
    inside = np.bincount(
        by_place[at[is_there]], weights=spans["dur_ns"][is_there], minlength=len(place)
    )
    assert (spans["self_ns"] == spans["dur_ns"] - inside.astype(np.int64)).all()


@pytest.mark.parametrize(
    ("threads", "count", "pause_us", "stopped"),
    [
        (2, 60_000, 0, False),
        (2, 150_000, 1000, True),
        pytest.param(4, 2_000_000, 0, False, marks=pytest.mark.stress),
        pytest.param(4, 600_000, 500, True, marks=pytest.mark.slow),
        pytest.param(4, 2_000_000, 500, True, marks=pytest.mark.stress),
    ],
)
def test_every_operator_is_recorded_or_counted_and_has_its_own_parent(
    driver: Path, tmp_path: Path, threads: int, count: int, pause_us: int, stopped: bool
) -> None:
    door = Door(tmp_path / "raw", drainer="process")
    process = start(driver, door, "tree", threads, count, pause_us)
    if stopped:
        for _ in range(3):
            time.sleep(0.1)
            door.drainers[0].send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            door.drainers[0].send_signal(signal.SIGCONT)
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    door.close()

    with Reader(converted(door, tmp_path)) as reader:
        recorded = reader.query("SELECT count(*) AS n FROM spans")["n"][0].as_py()
        assert recorded + lost(reader) == threads * count
        if count <= 90_000:
            assert recorded == threads * count
        assert not reader.has("problems")
        check_tree(reader)


def killed(driver: Path, folder: Path, threads: int, after_s: float, lagging: bool) -> None:
    """SIGKILL the driver after a while: all that it had published is in its raw file, byte for
    byte.
    """
    door = Door(folder / "raw", drainer="process")
    process = start(driver, door, "tree", threads, 100_000_000, 0 if lagging else 200)
    if lagging:
        door.drainers[0].send_signal(signal.SIGSTOP)
    time.sleep(after_s)
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    door.drainers[0].send_signal(signal.SIGCONT)
    (handed,) = door.handed.values()
    published = {int(header["index"]): int(header["published"]) for header in handed.headers()}
    door.close()
    (file,) = door.raw.glob("*/spool")
    chunks = list(raw_file.SpoolReader(file).chunks())
    for ring, until in published.items():
        records = [
            chunk for chunk in chunks if chunk.kind == raw_file.RECORDS and chunk.key == ring
        ]
        assert [chunk.first for chunk in records] == np.cumsum(
            [0] + [chunk.count for chunk in records]
        )[:-1].tolist()
        assert sum(chunk.count for chunk in records) == until
        if not until:
            continue  # it was killed before its first record
        last = np.concatenate([np.frombuffer(chunk.payload, dtypes.RECORD) for chunk in records])[
            -1000:
        ]
        memory = np.frombuffer(
            handed.rings[ring], dtypes.RECORD, layout.RING_RECORDS, layout.RING_HEADER
        )
        assert (memory[np.arange(until - len(last), until) % layout.RING_RECORDS] == last).all()
    with Reader(converted(door, folder)) as reader:
        unfinished = reader.query(
            "SELECT track, depth, count(*) AS n FROM spans WHERE unfinished GROUP BY 1, 2"
        )
        assert set(unfinished["n"].to_pylist()) <= {1}
        check_tree_of_a_dead(reader)


def check_tree_of_a_dead(reader: Reader) -> None:
    """What was open at death has no number of its own: only that nobody has a wrong parent can be
    checked.
    """
    (row,) = reader.query(
        "SELECT count(*) FILTER (c.depth <> p.depth + 1 OR c.track <> p.track OR c.start_ns < p.start_ns) AS wrong, "
        "count(*) FILTER (NOT p.unfinished AND c.sequence - p.sequence <> [1,1,2,1,5,1,1,2,4][c.sequence % 10]) AS not_mine "
        "FROM spans c JOIN spans p ON p.span = c.parent"
    ).to_pylist()
    assert row == {"wrong": 0, "not_mine": 0}


@pytest.mark.parametrize("lagging", [False, True])
def test_what_was_published_before_a_kill_is_there(
    driver: Path, tmp_path: Path, lagging: bool
) -> None:
    killed(driver, tmp_path, 3, 0.35, lagging)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2, *also(range(3, 20))])
def test_a_kill_at_a_random_moment_takes_nothing_that_was_published(
    driver: Path, tmp_path: Path, number: int
) -> None:
    dice = random.Random(number)
    killed(driver, tmp_path, dice.randint(1, 4), dice.uniform(0.0, 0.8), lagging=number % 2 == 0)


def consumed(door: Door) -> int:
    """Records that the drainer has taken, of all threads."""
    return sum(
        int(header["consumed"]) for handed in door.handed.values() for header in handed.headers()
    )


def test_a_second_drainer_goes_on_where_the_killed_one_stopped(
    driver: Path, tmp_path: Path
) -> None:
    door = Door(tmp_path / "raw", drainer="process")
    process = start(driver, door, "tree", 2, 600_000, 1500)
    for _ in range(2):
        before = consumed(door)
        for _ in range(500):
            if consumed(door) > before + 20_000 or process.poll() is not None:
                break
            time.sleep(0.01)
        assert process.poll() is None, "the driver ended before the drainer had anything"
        door.kill_drainer()
        door.start_drainer()
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    door.close()

    with Reader(converted(door, tmp_path)) as reader:
        recorded = reader.query("SELECT count(*) AS n FROM spans")["n"][0].as_py()
        assert recorded + lost(reader) == 1_200_000
        assert not reader.query("SELECT * FROM problems").to_pylist()
        check_tree(reader)

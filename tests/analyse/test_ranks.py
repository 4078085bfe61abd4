"""Ranks side by side: steps, waiting, and who holds the others up; with answers worked out by
hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.analyse.ranks import rank_times, slowest_rank
from layerscope.recording.reader import Reader
from tests.recordings import MS, Recording

ALL_REDUCE = "gloo:all_reduce"


class Job:
    """Ranks with steps of the same length; each calls one all-reduce a step, when it is ready."""

    def __init__(self, ready_ms: list[int], steps: int = 4) -> None:
        self.recording = Recording(rows={"processes": [], "tracks": []})
        self.recording.rows["processes"].clear()
        self.recording.rows["tracks"].clear()
        self.last_ms = max(ready_ms)
        for rank, ready in enumerate(ready_ms):
            self.recording.process = self.recording.add_process(
                100 + rank, rank=rank, host=f"node{rank // 2}"
            )
            self.recording.thread = self.recording.add_thread(
                self.recording.process, 100 + rank, "python"
            )
            for step in range(steps):
                self.step(step, step * 100 * MS, ready, warmup=step == 0)

    def step(self, step: int, start_ns: int, ready: int, warmup: bool) -> None:
        """The all-reduce ends for everybody 10 ms after the last one came; the step 5 ms after
        that.
        """
        dur_ns = (self.last_ms + 15) * MS * (3 if warmup else 1)
        self.recording.add_step(step, start_ns, (0, dur_ns, 0, 0, 0), warmup=warmup)
        call_ns = (self.last_ms + 10 - ready) * MS
        self.recording.add_span(ALL_REDUCE, start_ns + ready * MS, call_ns, step=step, kind="range")

    def reader(self, tmp_path: Path) -> Reader:
        return Reader(self.recording.write(tmp_path / "job.layerscope"))


def test_waiting_ends_when_the_last_rank_has_come(tmp_path: Path) -> None:
    with Job([20, 50, 30, 20]).reader(tmp_path) as reader:
        times = rank_times(reader)

    assert [(one.rank, one.host, one.steps) for one in times] == [
        (0, "node0", 4), (1, "node0", 4), (2, "node1", 4), (3, "node1", 4),
    ]  # fmt: skip
    assert [one.mean_ns for one in times] == [65 * MS] * 4  # without the warm-up
    assert [one.wait_ns for one in times] == [30 * MS, 0, 20 * MS, 30 * MS]
    assert [one.work_ns for one in times] == [35 * MS, 65 * MS, 45 * MS, 35 * MS]
    assert [one.of_median for one in times] == [1.0, 65 / 35, 45 / 35, 1.0]


def test_the_slowest_rank_is_the_one_that_works_longest(tmp_path: Path) -> None:
    with Job([20, 50, 30, 20]).reader(tmp_path) as reader:
        slowest = slowest_rank(rank_times(reader))

    assert slowest is not None
    assert (slowest.rank, slowest.ranks, slowest.work_ns) == (1, 4, 65 * MS)
    assert slowest.over == pytest.approx(65 / 35 - 1)
    assert slowest.others_wait_ns == 30 * MS


def test_one_rank_is_not_compared(tmp_path: Path) -> None:
    with Job([20]).reader(tmp_path) as reader:
        times = rank_times(reader)

    assert [(one.rank, one.wait_ns) for one in times] == [(0, None)]
    assert slowest_rank(times) is None


def test_calls_that_do_not_match_say_nothing_of_waiting(tmp_path: Path) -> None:
    job = Job([20, 50])
    job.recording.add_span(ALL_REDUCE, 900 * MS, MS, kind="range")
    with job.reader(tmp_path) as reader:
        times = rank_times(reader)

    assert [one.wait_ns for one in times] == [None, None]
    assert [one.work_ns for one in times] == [65 * MS] * 2


def test_what_is_no_collective_is_no_waiting(tmp_path: Path) -> None:
    job = Job([20, 50])
    for name in ("gloo:send", "c10d::allreduce_", "my gloo:all_reduce", "gloo:broadcast"):
        job.recording.add_span(name, 900 * MS, MS, kind="range")
    with job.reader(tmp_path) as reader:
        assert [one.wait_ns for one in rank_times(reader)] == [30 * MS, 0]


def test_a_wait_is_never_longer_than_the_call(tmp_path: Path) -> None:
    """Clocks of two hosts may disagree by more than a call takes."""
    job = Job([20, 50])
    for span in job.recording.rows["spans"]:
        span["dur_ns"] = min(span["dur_ns"], 8 * MS)
    with job.reader(tmp_path) as reader:
        assert [one.wait_ns for one in rank_times(reader)] == [8 * MS, 0]


def test_processes_that_load_data_belong_to_their_rank_and_have_no_steps(tmp_path: Path) -> None:
    job = Job([20, 50])
    job.recording.add_process(200, rank=1, host="node0")
    with job.reader(tmp_path) as reader:
        rows = tables.build(reader, "ranks").data.to_pylist()

    assert [row["processes"] for row in rows] == [1, 2]
    assert [row["steps"] for row in rows] == [4, 4]
    assert rows[0]["work_ns"] == 35 * MS


def test_a_process_of_a_rank_that_only_evaluates_has_no_part_in_its_steps(tmp_path: Path) -> None:
    job = Job([20, 50])
    recording = job.recording
    recording.process = recording.add_process(300, rank=0)
    recording.thread = recording.add_thread(recording.process, 300, "python")
    for step in range(9):
        recording.add_step(step, step * 100 * MS, (0, 900 * MS, 0, 0, 0), rule="loader")
    with job.reader(tmp_path) as reader:
        first, _ = rank_times(reader)

    assert (first.processes, first.steps, first.mean_ns) == (2, 4, 65 * MS)


def test_without_ranks_the_table_says_so(tmp_path: Path) -> None:
    with Reader(Recording().write(tmp_path / "one.layerscope")) as reader:
        result = tables.build(reader, "ranks")

        assert result.rows == 0
        assert result.sentences == ("No process was a rank of a distributed job.",)
        assert rank_times(reader) == []

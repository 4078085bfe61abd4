"""Recordings of several ranks read as one, from raw files made by hand: two nodes with two
clocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.rawfile import raw_file
from layerscope.recording import ranks
from layerscope.recording.run import ExitState, ProgramState, Run
from layerscope.session import ranked
from tests.ingest.raw_file import RawFile, ticks
from tests.ingest.sampler_file import SamplerFile
from tests.recorded import ask
from tests.recordings import run_info

S = 1_000_000_000
NOW_NS = 1_700_000_000 * S  # on CLOCK_REALTIME
BOOTED_NS = {"one": 500 * S, "two": 90_000 * S}  # CLOCK_MONOTONIC of the nodes at that moment


class Node(RawFile):
    """A raw file of one node. Times are given as CLOCK_REALTIME minus NOW_NS, which all nodes
    should agree on.
    """

    def __init__(
        self, folder: Path, name: str, pid: int, clock: str = "", tsc: bool = True, **about: Any
    ) -> None:
        self.offset_ns = BOOTED_NS[name]
        self.step_ns = 0
        super().__init__(
            folder / "raw",
            pid,
            self.here(0),
            tsc=tsc,
            monotonic_clock=clock or f"boot of {name}",
            **about,
        )
        (folder / "raw" / f"machine-one-{pid}-{self.here(0)}").rename(
            folder / "raw" / f"{name}-{pid}-{self.here(0)}"
        )

    def here(self, at_ns: int) -> int:
        """What CLOCK_MONOTONIC of this node says at a moment."""
        return at_ns + self.offset_ns

    def read_clocks(self, at_ns: int) -> None:
        """A reading; what the realtime clock of the node was set forward by counts."""
        here = self.here(at_ns)
        reading = [ticks(here), here, NOW_NS + at_ns + self.step_ns, 5]
        self.write(raw_file.POLL, np.array(reading, "<i8").tobytes())

    def work(self, times: list[int], name: str, tid: int) -> None:
        """An operator of one millisecond at each of `times`, the readings around them, and the
        end.
        """
        records = self.thread_begin(self.here(0), tid, 1)
        for at_ns in times:
            records += self.span(self.here(at_ns), self.here(at_ns + 1_000_000), 0, name)
        self.records(1, records)
        self.sample(self.here(times[0]), 7)

    def finish(self, at_ns: int) -> None:
        """The drainer's last word."""
        rows = [[kind, name, *sums] for (kind, name), sums in self.counts.items()]
        self.write(raw_file.TOTALS, np.array(rows, "<i8").tobytes())
        self.write(raw_file.LOSS, b'{"losses": [], "disk_full_ns": [], "alive": false}')
        self.read_clocks(at_ns)
        self.write(raw_file.END, b"{}")


class Job:
    """A recording of a launch of `world` ranks."""

    def __init__(self, folder: Path, world: int, recorded: list[int] | None = None) -> None:
        self.path = folder / "train-4711.layerscope"
        self.launch = ranks.LaunchInfo("job 4711", "Slurm", "4711", world, recorded)

    def rank(self, rank: int, node: str, ended: bool = True, **info: Any) -> Run:
        """A rank that has its own recording on `node`."""
        found = ranks.join(
            self.path,
            self.launch,
            rank,
            run_info(run_id=f"rank {rank}", host={"name": node, "cpu": {"granted": 8}}),
        )
        assert found
        found.info.program = ProgramState(S, 100 + rank, 10, 1000)
        found.info.state = info.get("state", "finished")
        found.info.exit = ExitState(info.get("code", 0))
        found.save()
        return found

    def problems(self) -> dict[str, str]:
        rows = ask(open_run(self.path), "SELECT code, what FROM problems")
        return {row["code"]: row["what"] for row in rows}


def two_nodes(tmp_path: Path, tsc: bool = True) -> tuple[Job, Node, Node]:
    job = Job(tmp_path, 2)
    one = Node(job.rank(0, "one").path, "one", 41, tsc=tsc, rank=0, world_size=2)
    two = Node(job.rank(1, "two").path, "two", 41, tsc=tsc, rank=1, world_size=2)
    return job, one, two


@pytest.mark.parametrize("tsc", [True, False])
def test_what_happened_at_once_on_two_nodes_has_one_time(tmp_path: Path, tsc: bool) -> None:
    job, *nodes = two_nodes(tmp_path, tsc)
    times = [i * S // 10 for i in range(1, 20)]
    for number, node in enumerate(nodes):
        node.read_clocks(0)
        node.work(times, f"op of {number}", 77)
        node.finish(3 * S)
    run = open_run(job.path)

    for number in range(2):
        rows = ask(
            run,
            f"SELECT start_ns, dur_ns FROM spans WHERE name = 'op of {number}' ORDER BY start_ns",
        )
        assert [row["start_ns"] - BOOTED_NS["one"] for row in rows] == times
        assert {row["dur_ns"] for row in rows} == {1_000_000}
    assert ask(run, "SELECT rank, host, start_ns, end_ns FROM processes ORDER BY rank") == [
        {
            "rank": rank,
            "host": host,
            "start_ns": BOOTED_NS["one"],
            "end_ns": BOOTED_NS["one"] + 3 * S,
        }
        for rank, host in enumerate(("one", "two"))
    ]
    assert ask(run, "SELECT DISTINCT at_ns FROM counters") == [
        {"at_ns": BOOTED_NS["one"] + times[0]}
    ]
    assert ask(run, "SELECT count(DISTINCT track) AS n FROM spans") == [{"n": 2}]
    assert job.problems() == {}


def test_the_clock_of_the_first_rank_is_the_runs_and_sums_are_those_of_all(tmp_path: Path) -> None:
    job, *nodes = two_nodes(tmp_path)
    for node in nodes:
        node.read_clocks(0)
        node.work([S], "op", 77)
        node.finish(2 * S)
    info = open_run(job.path).info

    assert (info.state, info.exit.code, info.granted_cpus) == ("finished", 0, 16)
    assert (info.program.wall_ns, info.program.user_ns, info.program.max_rss_bytes) == (
        S,
        201,
        2000,
    )


def test_the_stacks_of_all_ranks_are_there_on_one_clock(tmp_path: Path) -> None:
    job, *nodes = two_nodes(tmp_path)
    for number, node in enumerate(nodes):
        node.read_clocks(0)
        node.work([S], f"op of {number}", 77)
        node.finish(2 * S)
        stacks = SamplerFile(node.path.parents[1], 41, node.here(0))
        stacks.thread(0, 77, node.here(0))
        stacks.cpu(
            node.here(S + 500_000), 0, stacks.stack("main", "py:train", f"py:of_{number}"), 10
        )
        stacks.process(
            1, 500, 41, node.here(7), node.here(S)
        )  # a child of which nothing else is known
        stacks.thread(1, 500, node.here(7), process=1, name=b"sh")
        stacks.cpu(node.here(9), 1, stacks.stack("main"), 3)
        stacks.account(node.here(S), 0, 40 + number, 1, 1, 1, 1, 1, 1, 1)
        stacks.end(node.here(2 * S))
    run = open_run(job.path)

    columns = "p.rank, p.pid, tid, at_ns, weight_ns, s.name AS span, t.cpu_ns"
    tables = "samples JOIN tracks t USING (track) JOIN processes p USING (process) LEFT JOIN spans s USING (span)"
    rows = ask(run, f"SELECT {columns} FROM {tables} ORDER BY at_ns, rank")
    assert [(row["rank"], row["pid"], row["tid"], row["at_ns"] - BOOTED_NS["one"]) for row in rows] == [
        (0, 500, 500, 9), (1, 500, 500, 9), (0, 41, 77, S + 500_000), (1, 41, 77, S + 500_000),
    ]  # fmt: skip
    assert [row["span"] for row in rows] == [None, None, "op of 0", "op of 1"]
    assert [row["cpu_ns"] for row in rows] == [None, None, 40, 41]
    frames = ask(run, "SELECT DISTINCT name FROM frames WHERE layer = 'python' ORDER BY name")
    assert [row["name"] for row in frames] == ["of_0", "of_1", "train"]
    children = ask(
        run, "SELECT rank, host, argv, start_ns FROM processes WHERE pid = 500 ORDER BY rank"
    )
    assert children == [
        {"rank": rank, "host": host, "argv": "sh", "start_ns": BOOTED_NS["one"] + 7}
        for rank, host in enumerate(("one", "two"))
    ]


def test_one_clock_for_several_host_names_is_left_as_it_is(tmp_path: Path) -> None:
    """Containers on one machine: whatever their realtime said, they read the same
    CLOCK_MONOTONIC.
    """
    job = Job(tmp_path, 2)
    for rank in range(2):
        node = Node(job.rank(rank, f"container {rank}").path, "one", 41 + rank, clock="same boot")
        node.step_ns = rank * 7 * S
        node.read_clocks(0)
        node.work([S], "op", 77)
        node.finish(2 * S)

    rows = ask(open_run(job.path), "SELECT DISTINCT start_ns FROM spans")
    assert rows == [{"start_ns": BOOTED_NS["one"] + S}]
    assert job.problems() == {}


def test_a_clock_that_was_set_is_said_and_does_not_tear_the_rank_apart(tmp_path: Path) -> None:
    job, *nodes = two_nodes(tmp_path)
    for number, node in enumerate(nodes):
        for i in range(10):
            node.step_ns = 2 * S if number and i >= 7 else 0
            node.read_clocks(i * S)
        node.work([i * S for i in range(1, 10)], f"op of {number}", 77)
        node.finish(10 * S)

    for number in range(2):
        rows = ask(
            open_run(job.path),
            f"SELECT start_ns FROM spans WHERE name = 'op of {number}' ORDER BY start_ns",
        )
        assert [row["start_ns"] - BOOTED_NS["one"] for row in rows] == [i * S for i in range(1, 10)]
    assert job.problems() == {
        "clock_stepped": "the clock of host two was set during the run, by 2.000 s"
    }


def test_ranks_that_never_came_are_said(tmp_path: Path) -> None:
    job = Job(tmp_path, 4, recorded=[0, 2, 3])
    node = Node(job.rank(0, "one").path, "one", 41)
    node.read_clocks(0)
    node.work([S], "op", 77)
    node.finish(2 * S)
    job.rank(3, "one")

    assert job.problems() == {
        "rank_missing": "rank 2 of 4 never began to record",
        "rank_empty": "rank 3 recorded nothing",
    }


def test_a_rank_whose_layerscope_was_killed_is_said_and_a_bad_end_is_the_jobs(
    tmp_path: Path,
) -> None:
    job, *nodes = two_nodes(tmp_path)
    job.rank(2, "two", code=3)
    for node in nodes:
        node.read_clocks(0)
        node.work([S], "op", 77)
        node.finish(2 * S)
    part = ranks.parts(job.path)[1]
    part.info.state = "running"
    part.save()
    run = open_run(job.path)

    assert run.info.state == "killed"
    assert run.info.exit.code == 3
    assert (
        job.problems()["session_killed"]
        == "layerscope itself was killed on rank 1 before the program ended"
    )


def test_raw_files_that_stayed_on_their_host_are_named(tmp_path: Path) -> None:
    job, one, _ = two_nodes(tmp_path)
    one.read_clocks(0)
    one.work([S], "op", 77)
    one.finish(2 * S)
    raw = ranks.parts(job.path)[1].raw
    raw.rename(tmp_path / "gone")
    raw.symlink_to(tmp_path / "local")

    assert job.problems() == {"rank_elsewhere": "the raw files of rank 1 are still on its host"}


def test_a_recording_whose_raw_files_are_elsewhere_says_where(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "one.layerscope", run_info(state="running", host={"name": "node7"}))
    run.raw.rmdir()
    run.raw.symlink_to(tmp_path / "local")

    with pytest.raises(ReadError, match=r"still on host node7: copy \S*local from there"):
        open_run(run.path)


def test_a_rank_that_comes_later_is_in_the_next_opening(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    for rank, node_name in enumerate(("one", "two")):
        node = Node(job.rank(rank, node_name).path, node_name, 41)
        node.read_clocks(0)
        node.work([S], "op", 77)
        node.finish(2 * S)
        count = ask(open_run(job.path), "SELECT count(*) AS n FROM spans")
        assert count == [{"n": rank + 1}]


@pytest.mark.parametrize(("most_bytes", "is_read"), [(10**6, True), (0, False)])
def test_at_its_end_the_first_rank_reads_all_unless_that_takes_long(
    most_bytes: int, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranked, "PATIENCE_S", 0.2)
    monkeypatch.setattr(ranked, "_CONVERT_AT_ONCE_BYTES", most_bytes)
    job, *nodes = two_nodes(tmp_path)
    for node in nodes:
        node.read_clocks(0)
        node.work([S], "op", 77)
        node.finish(2 * S)
    job.rank(2, "two", state="running")
    together = ranked.read_together(ranks.parts(job.path)[0])

    assert (together is not None) is is_read
    assert Run.open(job.path).info.state == "finished"
    assert Run.open(job.path).info.program.max_rss_bytes == 3000


def test_a_rank_joins_its_own_launch_only_and_once(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.rank(0, "one")
    other = ranks.LaunchInfo("job 4712", "Slurm", "4712", 2)

    assert ranks.join(job.path, job.launch, 0, run_info()) is None
    assert ranks.join(job.path, other, 1, run_info()) is None
    assert ranks.join(job.path, job.launch, 1, run_info()) is not None
    assert sorted(ranks.parts(job.path)) == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == [job.path.name]


def test_a_recording_of_one_program_is_never_joined(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    Run.create(job.path, run_info())

    assert ranks.join(job.path, job.launch, 0, run_info()) is None

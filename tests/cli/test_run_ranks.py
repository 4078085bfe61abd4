"""Several ranks: started by a launcher around `layerscope run`, or by one inside; one recording,
one summary.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.recording import ranks
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.differential import PROGRAMS, environment, launcher, program
from tests.recorded import GLOO_ABORT, NO_STACKS, ask
from tests.repeated import also

EXAMPLES = PROGRAMS.parents[1] / "examples"
TIMEOUT_S = 200
ATTEMPTS = 3
PER_RANK = (
    "SELECT rank, count(*) AS n FROM spans JOIN tracks USING (track) JOIN processes USING (process) "
    "WHERE spans.name = 'aten::hypot' GROUP BY rank ORDER BY rank"
)
pytestmark = pytest.mark.slow


@dataclass
class Launched:
    """What a launch printed, and the folder it worked in."""

    status: int
    stdout: list[str]
    stderr: str
    folder: Path

    def open(self, name: str = "rank-4711") -> Run:
        return open_run(self.folder / f"{name}.layerscope")

    def per_rank(self, name: str = "rank-4711") -> dict[int, int]:
        return {row["rank"]: row["n"] for row in ask(self.open(name), PER_RANK)}

    def problems(self, name: str = "rank-4711") -> dict[str, str]:
        return {
            row["code"]: row["what"]
            for row in ask(self.open(name), "SELECT code, what FROM problems")
        }


class Launcher:
    """Starts launches in one folder."""

    def __init__(self, folder: Path, python: str) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.python = python
        self.layerscope = launcher(folder)

    def around(
        self,
        *words: str,
        how: str = "slurm",
        count: int = 2,
        run: tuple[str, ...] = (),
        **more: Any,
    ) -> Launched:
        """`srun layerscope run rank.py`: a launcher around layerscope."""
        recorded = [
            *self.layerscope,
            "run",
            *NO_STACKS,
            *run,
            "--",
            *program(self.python, "rank.py", *words),
        ]
        options = [word for name, value in more.items() for word in (f"--{name}", str(value))]
        return self.execute(
            [*program(self.python, "launches.py", *options, how, str(count)), *recorded]
        )

    def execute(self, command: list[str]) -> Launched:
        """Run a command to its end."""
        before = set(self.work.iterdir())
        for _ in range(ATTEMPTS):
            done = subprocess.run(
                command,
                cwd=self.work,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            if GLOO_ABORT not in done.stderr:
                break
            print("a rank aborted while it exited, as gloo does now and then: once more")
            for fresh in set(self.work.iterdir()) - before:
                shutil.rmtree(fresh, ignore_errors=True)
        return Launched(done.returncode, sorted(done.stdout.splitlines()), done.stderr, self.work)


@pytest.fixture
def start(tmp_path: Path, program_python: str, native_agent: Path) -> Launcher:
    return Launcher(tmp_path, program_python)


def test_ranks_of_a_job_are_one_recording_with_one_summary(start: Launcher) -> None:
    done = start.around(count=3)

    assert (done.status, done.stdout) == (0, ["rank 0", "rank 1", "rank 2"])
    assert done.stderr.count("layerscope: recording") == 1
    assert "rank 0 of 3, into rank-4711.layerscope" in done.stderr
    assert done.stderr.count("Overhead:") == 1
    assert [path.name for path in done.folder.iterdir()] == ["rank-4711.layerscope"]
    assert done.per_rank() == {0: 10, 1: 20, 2: 30}
    assert done.problems() == {}
    kept = (done.folder / "rank-4711.layerscope" / "summary.txt").read_text()
    assert kept in done.stderr
    assert "3 ranks" in kept
    # Each rank can be read by itself.
    for rank, part in ranks.parts(done.folder / "rank-4711.layerscope").items():
        rows = ask(
            open_run(part.path), "SELECT count(*) AS n FROM spans WHERE name = 'aten::hypot'"
        )
        assert rows == [{"n": 10 + 10 * rank}]


@pytest.mark.parametrize(
    ("how", "name"), [("openmpi", "rank-4711"), *also([("mpi", "rank"), ("bare", "rank")])]
)
def test_every_launcher_is_understood(how: str, name: str, start: Launcher) -> None:
    done = start.around(how=how)

    assert (done.status, done.stdout) == (0, ["rank 0", "rank 1"])
    assert done.per_rank(name) == {0: 10, 1: 20}


def test_a_recording_that_is_named_is_joined_and_not_overwritten(start: Launcher) -> None:
    first = start.around(run=("-o", "mine"))
    second = start.around(run=("-o", "mine"))

    assert (first.status, first.per_rank("mine")) == (0, {0: 10, 1: 20})
    assert (second.status, second.stdout) == (125, [])
    assert second.stderr.count("exists already") == 2


@pytest.mark.stress
def test_the_next_launch_of_a_job_has_a_recording_of_its_own(start: Launcher) -> None:
    first, second = start.around(), start.around()

    assert {path.name for path in first.folder.iterdir()} == {
        "rank-4711.layerscope",
        "rank-4711-2.layerscope",
    }
    assert second.per_rank("rank-4711-2") == first.per_rank() == {0: 10, 1: 20}


def test_a_rank_that_never_starts_is_said(start: Launcher) -> None:
    done = start.around(count=3, without=1)

    assert (done.status, done.stdout) == (0, ["rank 0", "rank 2"])
    assert "rank 1 of 3 never began to record" in done.stderr
    assert done.per_rank() == {0: 10, 2: 30}


def test_the_first_rank_does_not_wait_for_ever_and_later_openings_have_all(start: Launcher) -> None:
    done = start.around("late", "9", "1")

    assert (done.status, done.stdout) == (0, ["rank 0", "rank 1"])
    kept = done.folder / "rank-4711.layerscope" / "summary.txt"
    assert (
        kept.stat().st_mtime
        < (done.folder / "rank-4711.layerscope/ranks/1/run.json").stat().st_mtime
    )
    assert done.per_rank() == {0: 10, 1: 20}
    assert done.open().info.state == "finished"
    assert done.problems() == {}


def test_a_rank_that_fails_has_its_status_and_the_recording_says_so(start: Launcher) -> None:
    done = start.around("exits", "3", "1")

    assert done.status == 3
    assert done.open().info.exit.code == 3
    exits = ask(done.open(), "SELECT rank, exit FROM processes ORDER BY rank")
    assert exits == [{"rank": 0, "exit": 0}, {"rank": 1, "exit": 3}]


def test_only_the_ranks_that_are_named_are_recorded(start: Launcher) -> None:
    done = start.around("exits", "4", "0", count=4, run=("--ranks", "1,3"))

    assert (done.status, done.stdout) == (4, ["rank 0", "rank 1", "rank 2", "rank 3"])
    assert done.per_rank() == {1: 20, 3: 40}
    assert "rank 1 of 4, into" in done.stderr
    assert done.problems() == {}


def test_a_rank_whose_recorder_is_killed_leaves_the_others_whole(start: Launcher) -> None:
    command = [*start.layerscope, "run", "--", *program(start.python, "rank.py", "late", "60", "1")]
    words = [*program(start.python, "launches.py", "slurm", "2"), *command]
    with subprocess.Popen(
        words, cwd=start.work, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as all_:
        path = start.work / "rank-4711.layerscope"
        end = time.monotonic() + TIMEOUT_S
        while not (path / "summary.txt").exists():
            assert time.monotonic() < end
            time.sleep(0.1)
        pid = ranks.parts(path)[1].info.session_pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, signal.SIGKILL)
        for child in map(int, children):  # the program of that rank, and what stood beside it
            os.kill(child, signal.SIGKILL)
        all_.communicate(timeout=TIMEOUT_S)

    run = open_run(path)
    assert run.info.state == "killed"
    assert {row["rank"]: row["n"] for row in ask(run, PER_RANK)} == {0: 10, 1: 10}
    codes = [row["code"] for row in ask(run, "SELECT code FROM problems")]
    assert set(codes) <= {"session_killed", "stacks_cut"}
    assert "session_killed" in codes


def test_raw_files_lie_in_the_spool_until_the_end(start: Launcher, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    code = "import os; from facts import work; work(10); print(os.path.realpath('mine.layerscope/raw'))"
    script = start.work / "program.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); {code}\n")
    done = start.execute(
        [
            *start.layerscope,
            "run",
            "-o",
            "mine",
            "--spool",
            str(spool),
            "--",
            start.python,
            str(script),
        ]
    )

    assert done.status == 0, done.stderr
    assert Path(done.stdout[0]).parent == spool
    assert list(spool.iterdir()) == []
    raw = done.folder / "mine.layerscope" / "raw"
    assert raw.is_dir()
    assert not raw.is_symlink()
    assert ask(done.open("mine"), "SELECT count(*) AS n FROM spans WHERE name = 'aten::hypot'") == [
        {"n": 10}
    ]


def test_a_spool_that_cannot_be_is_refused_and_nothing_is_left(
    start: Launcher, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = start.execute(
        [*start.layerscope, "run", "--spool", str(tmp_path / "file"), "--", "true"]
    )

    assert done.status == 125
    assert "Choose another --spool" in done.stderr
    assert list(done.folder.iterdir()) == []


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun(start: Launcher, *words: str) -> list[str]:
    where = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [start.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", *where, *words]


def ddp(*words: str) -> list[str]:
    return [str(EXAMPLES / "ddp_gloo.py"), "--steps", "30", *words]


def check_training(done: Launched) -> None:
    """Both ranks came to their end, with the same weights. Their lines may run into each other."""
    assert done.status == 0, done.stderr
    first, second = re.findall(r"weights (\d+\.\d{4})", "\n".join(done.stdout))
    assert first == second


def check_ddp(run: Run) -> None:
    """Two ranks with their steps, and what each waited for the other."""
    with Reader(run) as reader:
        rows = tables.build(reader, "ranks").data.to_pylist()
    assert [(row["rank"], row["steps"]) for row in rows] == [(0, 30), (1, 30)]
    assert all(0 <= row["wait_ns"] <= row["mean_ns"] for row in rows)
    assert all(row["work_ns"] == row["mean_ns"] - row["wait_ns"] for row in rows)


def test_ranks_of_torchrun_are_processes_of_one_recording(start: Launcher) -> None:
    done = start.execute([*start.layerscope, "run", "-o", "mine", "--", *torchrun(start, *ddp())])

    assert done.stderr.count("Overhead:") == 1
    check_training(done)
    check_ddp(done.open("mine"))
    with Reader(done.open("mine")) as reader:
        rows = tables.build(reader, "processes").data.to_pylist()
    assert [(row["role"], row["rank"]) for row in rows if row["role"] != "rank"] == [
        ("program", None)
    ]
    assert sorted(row["rank"] for row in rows if row["role"] == "rank") == [0, 1]


@pytest.mark.stress
def test_torchrun_around_layerscope_gives_one_recording_too(start: Launcher) -> None:
    words = [*start.layerscope, "run", "-o", "mine", "--", start.python, *ddp("--slow-rank", "1")]
    done = start.execute(torchrun(start, "--no-python", *words))

    assert done.stderr.count("Overhead:") == 1
    check_training(done)
    check_ddp(done.open("mine"))


@pytest.mark.stress
def test_a_rank_inside_that_is_not_named_is_left_alone(start: Launcher) -> None:
    done = start.execute(
        [*start.layerscope, "run", "--ranks", "1", "-o", "mine", "--", *torchrun(start, *ddp())]
    )

    check_training(done)
    rows = ask(
        done.open("mine"),
        "SELECT DISTINCT rank FROM spans JOIN tracks USING (track) JOIN processes USING (process)",
    )
    assert rows == [{"rank": 1}]

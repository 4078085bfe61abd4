"""A real program that makes more than its recording may hold: the size is kept, and the sums stay
exact.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope.rawfile import raw_file
from layerscope.recording.reader import check_tables
from layerscope.session.finish import folder_bytes
from tests.quick_torch import WITHOUT_COMPILER, quick
from tests.recorded import ROOT, TIMEOUT_S, Recorded, ask, layerscope, open_run

pytestmark = pytest.mark.slow

STEPS, INSIDE = 10_000, 20
# Every operator is called so often in each step, and no other is.
PROGRAM = (
    WITHOUT_COMPILER
    + f"""
import torch
torch.set_num_threads(1)
x, model = torch.rand(8), torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range({STEPS}):
    for _ in range({INSIDE}):
        torch.neg(x)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
)
MAX_SIZE = 4_000_000


def run(python: str, cwd: Path, *options: str) -> Recorded:
    (cwd / "program.py").write_text(quick(PROGRAM))
    done = layerscope("run", *options, "-o", "run", "--", python, "program.py", cwd=cwd)
    return Recorded(open_run(cwd / "run.layerscope"), done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def small(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return run(program_python, tmp_path_factory.mktemp("small"), "--max-size", "4MB")


@pytest.fixture(scope="module")
def full(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return run(program_python, tmp_path_factory.mktemp("full"), "--full")


def test_the_recording_stays_within_its_size(small: Recorded, full: Recorded) -> None:
    assert (small.status, full.status) == (0, 0)
    assert folder_bytes(small.run.path) <= MAX_SIZE < folder_bytes(full.run.path)
    check_tables(small.run)
    assert "Kept in detail: " in small.stderr
    assert "Kept in detail: " not in full.stderr


def test_the_sums_are_exact(small: Recorded, full: Recorded) -> None:
    for recorded in (small, full):
        known = recorded.rows("SELECT name, sum(count)::BIGINT AS calls FROM totals GROUP BY name")
        calls = {row["name"]: row["calls"] for row in known}
        assert calls["aten::neg"] == STEPS * INSIDE
        assert calls["Optimizer.step#SGD.step"] == STEPS


def test_nothing_is_thinned_that_fits(full: Recorded) -> None:
    assert full.value("SELECT count(*) FROM spans WHERE name = 'aten::neg'") == STEPS * INSIDE
    assert full.value("SELECT count(*) FROM steps WHERE weight = 1") == STEPS
    assert full.value("SELECT count(*) FROM histograms") == 0
    assert full.value("SELECT count(*) FROM problems") == 0


def test_kept_steps_are_whole_and_stand_for_all(small: Recorded) -> None:
    assert small.value("SELECT max(weight) FROM spans") > 1
    # What the drainer could not keep, because the conversion was behind on a busy machine, is
    # counted.
    lost = small.value("SELECT coalesce(sum(lost), 0)::BIGINT FROM gaps")
    if lost == 0:
        assert (
            small.value("SELECT count(*) FROM steps")
            == small.value("SELECT sum(weight) FROM steps")
            == STEPS
        )
    torn = small.value(
        f"""SELECT count(*) FROM (SELECT step FROM spans WHERE name = 'aten::neg' AND step > 0
                                  GROUP BY step HAVING count(*) <> {INSIDE})"""
    )
    assert torn <= (0 if lost == 0 else 2 * small.value("SELECT count(*) FROM gaps"))


@pytest.mark.parametrize(
    "words", [("--max-size", "0"), ("--max-size", "lots"), ("--full", "--max-size", "1GB")]
)
def test_a_size_that_makes_no_sense_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    done = layerscope("run", *words, "--", "true", cwd=tmp_path)
    assert done.returncode == 125, done.stderr
    assert "--max-size" in done.stderr
    assert not list(tmp_path.iterdir())


def has_removed(raw: Path) -> bool:
    """Whether spans were taken out of the raw files."""
    with contextlib.suppress(OSError):
        for path in raw_file.spools(raw):
            if raw_file.STRIPPED in {chunk.kind for chunk in raw_file.SpoolReader(path).chunks()}:
                return True
    return False


def test_what_is_left_of_a_long_run_whose_recorder_was_killed_is_read(
    program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(quick(PROGRAM.replace(f"range({STEPS})", "range(10**9)")))
    command = [
        sys.executable,
        "-m",
        "layerscope",
        "run",
        "--max-size",
        "4MB",
        "-o",
        "run",
        "--",
        program_python,
        "program.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    raw = tmp_path / "run.layerscope" / "raw"
    try:
        give_up = time.monotonic() + TIMEOUT_S
        while not has_removed(raw):
            assert time.monotonic() < give_up
            time.sleep(0.5)
    finally:
        # The session first, so that it ends nothing in order; whoever it started has no other
        # parent.
        ours = [running.pid, *(int(pid) for pid in children_of(running.pid))]
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in ours) and time.monotonic() < give_up:
        time.sleep(0.05)
    run = open_run(raw.parent)
    (known,) = ask(
        run, "SELECT sum(count)::BIGINT AS spans FROM totals WHERE step_class <> 'unknown'"
    )
    (kept,) = ask(run, "SELECT sum(weight)::BIGINT AS spans FROM spans")
    (gone,) = ask(
        run, "SELECT coalesce(sum(lost), 0)::BIGINT AS spans FROM gaps WHERE reason = 'max_size'"
    )
    assert run.info.state == "killed"
    assert gone["spans"] > 0
    assert known["spans"] > 0 < kept["spans"]
    assert any(row["code"] == "session_killed" for row in ask(run, "SELECT code FROM problems"))


def children_of(pid: int) -> list[str]:
    """The processes that this one started."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

"""`run --budget`: stacks are sampled more rarely where the recording costs too much."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.attempts import once_in_three
from tests.recorded import Recorded, layerscope

# Eight threads with 0.4 s each, then hundreds with a few ms.
PROGRAM = """
import threading, time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(500))
def run(count, seconds):
    threads = [threading.Thread(target=burn, args=(seconds,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
begun = time.monotonic()
run(8, 0.4)
while time.monotonic() < begun + 5.6:
    run(10, 0.003)
print(time.process_time_ns())
"""


@pytest.mark.slow
@pytest.mark.alone
@once_in_three
def test_many_threads_under_a_small_budget_are_sampled_more_rarely(
    native_agent: Path, perf_events: None, program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "many.py").write_text(PROGRAM)
    name = f"recording-{len(list(tmp_path.iterdir()))}"
    # With a window the recording does not pause, so all CPU time is there.
    words = ("--budget", "0.5%", "--for", "100", "--", program_python, "many.py")
    done = layerscope("run", "-o", name, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = tmp_path / f"{name}.layerscope"
    recorded = Recorded(open_run(path), done.returncode, done.stdout, done.stderr)

    rates = {
        row["rate_hz"] for row in recorded.rows("SELECT rate_hz FROM samples WHERE kind = 'cpu'")
    }
    assert 99 in rates
    assert min(rates) <= 49
    (problem,) = recorded.rows("SELECT * FROM problems WHERE code = 'rate_lowered'")
    assert "s on stacks were sampled at 49 instead of 99 Hz" in problem["what"]
    assert "below 0.5 % of the program's" in problem["what"]
    assert problem["remedy"].startswith("--budget 1% ")
    assert "were sampled at 49 instead of 99 Hz" in " ".join(done.stderr.split())
    (stacks,) = (
        layer
        for layer in json.loads((path / "run.json").read_text())["layers"]
        if layer["name"] == "stacks"
    )
    assert (stacks["rate_hz"], stacks["lowest_rate_hz"]) == (99, min(rates))
    # All of the CPU time is there, of each thread and of all.
    sums = recorded.rows(
        "SELECT any_value(cpu_ns) AS cpu_ns, sum(weight_ns)::BIGINT AS weight_ns FROM samples JOIN tracks "
        "USING (track) WHERE samples.kind = 'cpu' AND cpu_ns IS NOT NULL GROUP BY track"
    )
    assert len(sums) > 100
    assert all(row["weight_ns"] == row["cpu_ns"] for row in sums)
    whole = sum(row["weight_ns"] for row in sums)
    assert abs(whole / int(done.stdout) - 1) < 0.05


@pytest.mark.parametrize("text", ["-3%", "abc", "0", "101%", ""])
def test_a_budget_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    done = layerscope("run", f"--budget={text}", "true", cwd=tmp_path)
    assert done.returncode == 125
    assert "give a percentage above 0 and up to 100, such as 3%, or none" in done.stderr


OPERATORS = """
import time, torch
x, end = torch.zeros(4), time.monotonic() + 9
while time.monotonic() < end:
    for _ in range(1000):
        x + 1
"""


@pytest.mark.slow
def test_a_recording_of_many_operators_pauses_and_says_so(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "many.py").write_text(OPERATORS)
    words = ("--without", "stacks", "--budget", "1%", "--", program_python, "many.py")
    done = layerscope("run", "-o", "one", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(
        open_run(tmp_path / "one.layerscope"), done.returncode, done.stdout, done.stderr
    )
    (problem,) = recorded.rows("SELECT * FROM problems WHERE code = 'budget_pauses'")
    assert "paused" in problem["what"]
    assert "below 1 % of the program's" in problem["what"]
    assert problem["remedy"] == "--budget 2% records more, --budget none everything"
    text = " ".join(done.stderr.split())
    assert re.search(r"Only a window was recorded: \d\.\d of \d+\.\d s, as a budget of 1 %", text)
    closed = [
        row["at_ns"] for row in recorded.rows("SELECT at_ns FROM marks WHERE kind = 'closed'")
    ]
    assert closed
    # Nothing is recorded from the first pause to the end, or to where the window opens again.
    opened = [
        row["at_ns"] for row in recorded.rows("SELECT at_ns FROM marks WHERE kind = 'opened'")
    ]
    until_ns = min((at_ns for at_ns in opened if at_ns > closed[0]), default=2**63 - 1)
    (row,) = recorded.rows(
        f"SELECT count(*) AS there FROM spans WHERE start_ns > {closed[0]} AND start_ns < {until_ns}"
    )
    assert row["there"] == 0
    (row,) = recorded.rows(f"SELECT count(*) AS there FROM spans WHERE start_ns < {closed[0]}")
    assert row["there"] > 10_000


def test_a_budget_of_nothing_to_record_says_nothing_of_windows(
    native_agent: Path, tmp_path: Path
) -> None:
    done = layerscope("run", "-o", "one", "--budget", "3%", "true", cwd=tmp_path)
    assert done.returncode == 0
    assert "window" not in done.stderr


def test_a_budget_that_nothing_follows_says_so(native_agent: Path, tmp_path: Path) -> None:
    words = ("--budget", "3%", "--without", "stacks", "--for", "9", "true")
    done = layerscope("run", "-o", "one", *words, cwd=tmp_path)
    assert done.returncode == 0
    recorded = Recorded(
        open_run(tmp_path / "one.layerscope"), done.returncode, done.stdout, done.stderr
    )
    (problem,) = recorded.rows("SELECT * FROM problems WHERE code = 'budget_unkept'")
    assert "nothing follows the budget of 3 %" in problem["what"]

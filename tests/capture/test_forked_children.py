"""Children that a program forks, and that never execute another: their CPU time, memory, command
line and end are known as those of the program are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.recorded import ask, layerscope

PROGRAM = """
import os, time

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(500))

children = []
for number in range(2):
    child = os.fork()
    if not child:
        memory = bytearray(b'x') * (64 << 20)
        burn(0.4)
        if number:
            os.kill(os.getpid(), 9)
        os._exit(3)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("isolated", [False, True], ids=["python", "without the agent"])
def test_what_is_known_of_forked_children(
    native_agent: Path, perf_events: None, program_python: str, tmp_path: Path, isolated: bool
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [program_python, *(["-I"] if isolated else []), "program.py"]
    layerscope("run", "-q", "-o", "a", "--", *command, cwd=tmp_path)

    run = open_run(tmp_path / "a.layerscope")
    program, *children = ask(run, "SELECT * FROM processes ORDER BY start_ns, process")
    assert [row["argv"] for row in children] == [program["argv"]] * 2
    assert sorted(row["exit"] for row in children) == [-9, 3]
    used = ask(
        run,
        "SELECT process, counters.name, max(value) AS value "
        "FROM counters JOIN tracks USING (track) GROUP BY ALL",
    )
    of = {(row["process"], row["name"]): row["value"] for row in used}
    for row in children:
        process = row["process"]
        assert 0.3e9 < of[process, "cpu_ns"] < 0.8e9
        spent_ns = of[process, "user_ns"] + of[process, "system_ns"]
        assert abs(spent_ns - of[process, "cpu_ns"]) < 0.1e9
        assert of[process, "rss_peak_bytes"] > 64 << 20
        assert of[process, "faults_minor"] > 0


def test_a_child_that_becomes_another_program_has_the_end_and_the_name_of_that(
    native_agent: Path, perf_events: None, tmp_path: Path
) -> None:
    command = f"{sys.executable} -S -c 'raise SystemExit(5)'; sleep 0.4; true"
    layerscope("run", "-q", "-o", "a", "--", "sh", "-c", command, cwd=tmp_path)

    run = open_run(tmp_path / "a.layerscope")
    program, child, sleep = ask(run, "SELECT * FROM processes ORDER BY start_ns, process")
    assert (program["exit"], child["exit"], sleep["exit"]) == (0, 5, 0)
    assert sleep["argv"] == "sleep"

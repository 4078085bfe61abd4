"""What is counted of a program, against what it asks the system itself, GNU time and `perf stat`.

Counts are compared within some percent and a constant: recording wakes threads of the program now
and then, and a process is read the last time up to 1 s before its end.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest.open import open_run
from tests.attempts import once_in_three
from tests.cpu_groups import CpuGroup
from tests.quick_torch import quick
from tests.recorded import Recorded, layerscope

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent", "perf_events")]

# Two threads that sleep 1 ms again and again, one that computes, memory that is touched and given
# back, a file.
PROGRAM = """
import json, mmap, os, resource, threading, time
import torch

ROUNDS = 1500

def naps():
    for _ in range(ROUNDS):
        time.sleep(0.001)

threads = [threading.Thread(target=naps) for _ in range(2)]
for thread in threads:
    thread.start()
x = torch.ones(64, 64)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    x = (x @ x).clamp(0, 1)
for _ in range(8):
    memory = mmap.mmap(-1, 40_000_000)
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    memory.close()
with open("written", "wb") as file:
    file.write(bytes(20_000_000))
    file.flush()
    os.fsync(file.fileno())
for thread in threads:
    thread.join()
used = resource.getrusage(resource.RUSAGE_SELF)
def delay_ns(tid):
    try:
        return int(open(f"/proc/self/task/{tid}/schedstat").read().split()[1])
    except OSError:  # one that was waited for, and has gone now
        return 0
print(json.dumps({
    "cpu_ns": time.process_time_ns(), "voluntary": used.ru_nvcsw, "forced": used.ru_nivcsw, "minor": used.ru_minflt,
    "peak_bytes": used.ru_maxrss * 1024, "written": used.ru_oublock * 512,
    "delay_ns": sum(map(delay_ns, os.listdir("/proc/self/task"))),
}), flush=True)
time.sleep(1.5)  # read once more
os._exit(0)
"""


def record(
    python: str, folder: Path, *around: str, program: str = PROGRAM
) -> tuple[Recorded, dict[str, Any]]:
    """Record the program, run by `around`, and what it says of itself."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    (folder / "program.py").write_text(quick(program))
    done = layerscope("run", "-o", "recording", "--", *around, python, "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_run(folder / "recording.layerscope"), 0, done.stdout, done.stderr)
    return recorded, json.loads(
        next(line for line in done.stdout.splitlines() if line.startswith("{"))
    )


def by_process(recorded: Recorded) -> dict[str, Any]:
    """The row of the process with the most CPU time in `layerscope table counters --by process`."""
    done = layerscope(
        "table", str(recorded.run.path), "counters", "--by", "process", "--json", "--sort", "cpu_ns",
        cwd=recorded.run.path.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout)[0]


def rows_of(printed: str) -> list[dict[str, Any]]:
    """The rows of a table printed with --json."""
    told = json.loads(printed)
    names = [column["name"] for column in told["columns"]]
    return [dict(zip(names, row, strict=True)) for row in told["rows"]]


def is_near(found: float, known: float, percent: float, more: float) -> bool:
    return abs(found - known) <= percent / 100 * known + more


@pytest.fixture(scope="module")
def counted(
    native_agent: Path,
    perf_events: None,
    program_python: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Recorded, dict[str, Any]]:
    """The program, recorded without anything around it, and what it says of itself."""
    return record(program_python, tmp_path_factory.mktemp("counted"))


def test_a_process_is_counted_as_it_counts_itself(counted: tuple[Recorded, dict[str, Any]]) -> None:
    recorded, own = counted
    found = by_process(recorded)

    assert is_near(found["cpu_ns"], own["cpu_ns"], 2, 100e6), (found, own)
    assert is_near(found["faults"], own["minor"], 2, 1000), (found, own)
    assert found["faults"] > 8 * 40_000_000 / 4096
    assert own["peak_bytes"] <= found["peak_bytes"] + 1_000_000, (found, own)
    assert is_near(found["peak_bytes"], own["peak_bytes"], 2, 1_000_000), (found, own)
    assert is_near(found["write_bytes"], own["written"], 5, 4_000_000), (found, own)
    assert found["write_bytes"] >= 20_000_000 or own["written"] < 20_000_000, (found, own)
    # Of threads that ended up to a second ago the switches since their last reading are not known.
    voluntary = found["switches"] - found["forced"]
    assert voluntary <= 1.02 * own["voluntary"] + 200, (found, own)
    assert voluntary >= 0.4 * own["voluntary"], (found, own)
    assert found["migrations"] <= found["switches"]


def test_the_threads_add_up_to_their_process(counted: tuple[Recorded, dict[str, Any]]) -> None:
    recorded, own = counted
    threads = recorded.rows(
        "SELECT * FROM tracks WHERE kind = 'thread' AND cpu_ns IS NOT NULL AND process = 0"
    )

    assert is_near(sum(row["cpu_ns"] for row in threads), own["cpu_ns"], 3, 100e6), (threads, own)
    # Delays of threads that have ended are not among what it sees itself at its end.
    assert sum(row["delay_ns"] for row in threads) >= 0.9 * own["delay_ns"] - 50e6, (threads, own)


def test_the_whole_run_is_what_time_says(program_python: str, tmp_path: Path) -> None:
    """GNU time, as a child of ours, is told by the system what ours tells us of it and its
    child.
    """
    time_command = shutil.which("time")
    if time_command is None:
        pytest.skip("GNU time is not installed")
    recorded, _ = record(program_python, tmp_path, time_command, "-f", "told %w %c %F %R %M %O")
    told = re.search(r"told (.*)", recorded.stderr)
    assert told, recorded.stderr
    voluntary, forced, major, minor, peak_kb, blocks = map(int, told.group(1).split())
    program = recorded.run.info.program

    assert program.switches_voluntary is not None
    assert program.switches_forced is not None
    assert program.storage_written_bytes is not None
    assert is_near(program.switches_voluntary, voluntary, 1, 50), (program, told)
    assert is_near(program.switches_forced, forced, 1, 50), (program, told)
    assert is_near(program.faults_minor, minor, 1, 1000), (program, told)
    assert is_near(program.faults_major, major, 1, 20), (program, told)
    assert is_near(program.max_rss_bytes, peak_kb * 1024, 1, 1_000_000), (program, told)
    assert is_near(program.storage_written_bytes, blocks * 512, 1, 200_000), (program, told)


@once_in_three
def test_a_run_is_counted_as_perf_counts_it(program_python: str, tmp_path: Path) -> None:
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not installed")
    events = "task-clock,context-switches,cpu-migrations,page-faults"
    probe = subprocess.run(
        [perf, "stat", "-x,", "-e", events, "true"], capture_output=True, text=True, check=False
    )
    if probe.returncode or "<not" in probe.stderr:
        pytest.skip(f"perf stat does not count here: {probe.stderr.strip()}")
    recorded, _ = record(
        program_python, tmp_path, perf, "stat", "-x,", "-e", events, "-o", "counted"
    )
    lines = (recorded.run.path.parent / "counted").read_text().splitlines()
    counted = {words[2]: float(words[0]) for line in lines if len(words := line.split(",")) > 3}
    found = by_process(recorded)
    program = recorded.run.info.program

    assert program.switches_voluntary is not None
    assert program.switches_forced is not None
    assert is_near(found["cpu_ns"], counted["task-clock"] * 1e6, 5, 200e6), (found, counted)
    assert is_near(found["faults"], counted["page-faults"], 3, 3000), (found, counted)
    switches = program.switches_voluntary + program.switches_forced
    assert is_near(switches, counted["context-switches"], 5, 300), (program, counted)
    # What moved while the sampler had not found a thread yet, and threads that perf follows before
    # they are ours.
    assert found["migrations"] <= 1.1 * counted["cpu-migrations"] + 20, (found, counted)
    assert found["migrations"] >= 0.5 * counted["cpu-migrations"] - 20, (found, counted)


STEPS = """
import time, torch
import torch.nn as nn

class Work(nn.Module):
    def forward(self, x, how):
        end = time.thread_time_ns() + (200_000_000 if how else 0)
        while time.thread_time_ns() < end:
            x = (x @ x).clamp(0, 1)
        if not how:
            time.sleep(0.2)
        return x

model = Work()
torch.set_num_threads(1)
with torch.no_grad():
    for number in range(10):
        model(torch.ones(32, 32), number % 2)
"""


@once_in_three
def test_steps_that_compute_and_steps_that_sleep_are_told_apart(
    program_python: str, tmp_path: Path
) -> None:
    """Five steps use 200 ms of CPU time and five none; the samples around each end are 10 ms."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    (folder / "program.py").write_text(quick(STEPS))
    done = layerscope("run", "-o", "recording", "--", program_python, "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = layerscope("table", "recording", "counters", "--by", "step", "--json", cwd=folder)
    rows = rows_of(done.stdout)

    assert len(rows) == 10, done.stdout
    asleep, busy = rows[0::2], rows[1::2]
    assert all(row["cpu_ns"] <= 25_000_000 for row in asleep[1:]), asleep
    assert all(is_near(row["cpu_ns"], 200_000_000, 2, 25_000_000) for row in busy), busy
    summary = (folder / "recording.layerscope" / "summary.txt").read_text()
    assert re.search(r"^Call thread: .* sleeping", summary, re.MULTILINE), summary


# It sleeps until the recorder reads it, and until that has read it once more.
LIMITED = """
import sys, time

def throttled():
    with open(sys.argv[1] + "/cpu.stat") as file:
        told = dict(line.split() for line in file)
    return int(told["nr_throttled"]), int(told.get("throttled_time", 0)) or int(told.get("throttled_usec", 0)) * 1000

time.sleep(3)
before = throttled()
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
after = throttled()
time.sleep(2.5)
print(after[0] - before[0], after[1] - before[1])
"""


def test_a_limit_of_cpu_time_shows_as_throttling(tmp_path: Path) -> None:
    """0.3 s of CPU time at a tenth of a CPU are about thirty periods, in almost all of which it is
    stopped.
    """
    (tmp_path / "program.py").write_text(quick(LIMITED))
    with CpuGroup(0.1) as group:
        words = (
            "run",
            "-o",
            "recording",
            "--",
            *group.words,
            sys.executable,
            "program.py",
            str(group.folder),
        )
        done = layerscope(*words, cwd=tmp_path)
        _, throttled, throttled_ns = group.counted()
    assert done.returncode == 0, done.stderr
    count, spent_ns = map(int, done.stdout.split())
    recorded = Recorded(open_run(tmp_path / "recording.layerscope"), 0, done.stdout, done.stderr)
    readings = "FROM counters c JOIN tracks t USING (track) WHERE t.name = 'cgroup' GROUP BY c.name"
    told = {
        row["name"]: row["last"]
        for row in recorded.rows(f"SELECT c.name, max(value) AS last {readings}")
    }

    assert count > 10, throttled
    assert count <= told["throttled"] <= throttled, (count, told, throttled)
    assert spent_ns <= told["throttled_ns"] <= throttled_ns, (spent_ns, told, throttled_ns)
    assert (
        f"throttled {told['throttled']} times"
        in (tmp_path / "recording.layerscope" / "summary.txt").read_text()
    )

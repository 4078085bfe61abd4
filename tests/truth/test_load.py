"""What is lost under load, and when our own processes die, is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.quick_torch import quick
from tests.recorded import ROOT, Recorded, record
from tests.repeated import times

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# TorchScript runs without Python's lock: two threads really make operators on two cores at once.
TWO_THREADS = """
import sys, threading, time, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
@torch.jit.script
def loop(x: torch.Tensor, n: int):
    for i in range(n):
        x = x * x
    return x
seconds, counts = float(sys.argv[1]), [0, 0]
def work(k):
    ones, end = torch.ones(8), time.monotonic() + seconds
    while time.monotonic() < end:
        loop(ones, 10000)
        counts[k] += 10000
threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sum(counts))
"""

ENDLESS = """
import torch
x = torch.ones(8)
print("started", flush=True)
while True:
    with torch.autograd.profiler.record_function("endless"):
        for _ in range(1000):
            x.mul_(1.0)
"""


def test_two_threads_of_tiny_operators_lose_nothing_that_is_not_counted(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, TWO_THREADS, tmp_path, times("60", "5"))

    assert recorded.status == 0, recorded.stderr
    # Where others have the CPU or the disk for long the rings overflow (`dev.py bench drain`:
    # nothing, on a quiet one).
    made, lost = (
        int(recorded.stdout),
        recorded.value("select coalesce(sum(lost), 0)::BIGINT from gaps"),
    )
    assert recorded.value("select count(*) from gaps where reason <> 'ring_full'") == 0
    assert recorded.value("select count(distinct track) from spans where name = 'aten::mul'") == 2
    # So many are not all kept one by one (docs/long_runs.md); the sums know of each.
    known = recorded.value("select sum(count)::BIGINT from totals where name = 'aten::mul'")
    # What is lost may be the call of the loop itself, one in ten thousand.
    assert made - known <= lost <= made - known + made // 1000
    assert known > 0


def test_program_and_drainer_killed_together_lose_the_last_poll_at_most_and_say_so(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(quick(ENDLESS))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = ["-m", "layerscope", "run", "-o", "recording", "--", program_python, "program.py"]
    session = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert session.stdout
    assert session.stdout.readline() == "started\n"
    time.sleep(1.5)
    children = {_words(pid): pid for pid in _children(session.pid)}
    drainer = next(pid for words, pid in children.items() if "layerscope.capture.drainer" in words)
    program = next(
        pid for words, pid in children.items() if words == f"{program_python} program.py"
    )
    killed_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    os.kill(drainer, signal.SIGKILL)
    os.kill(program, signal.SIGKILL)
    _, stderr = session.communicate(timeout=120)

    recorded = Recorded(open_run(tmp_path / "recording.layerscope"), session.returncode, "", stderr)
    assert session.returncode == -signal.SIGKILL
    last_ns = recorded.value("select max(start_ns + dur_ns) from spans where not unfinished")
    assert killed_ns - last_ns < 300_000_000
    assert any("drainer" in row["what"] for row in recorded.rows("select what from problems"))
    assert "drainer" in stderr


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()

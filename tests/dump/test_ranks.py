"""The ranks of a distributed job: the one that is missing in a collective is named."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.dump.dumped import dump, running
from tests.recorded import layerscope

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]
_PATIENCE_S = 90.0
RANK = """
import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as distributed

def late():
    if distributed.get_rank() == 1:
        time.sleep(600)

distributed.init_process_group("gloo", timeout=timedelta(seconds=600))
distributed.barrier()
late()
distributed.all_reduce(torch.ones(4))
"""
LAUNCH = """
import os, subprocess, sys
port, world = sys.argv[2], 3
for rank in range(world):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=port, LOCAL_RANK=str(rank), OMP_NUM_THREADS="1")
    last = subprocess.Popen([sys.executable, sys.argv[1]], env=environment)
print("ready", flush=True)
last.wait()
"""


def test_the_missing_rank_of_three_is_named(tmp_path: Path, program_python: str) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with running([program_python, "-c", LAUNCH, str(script), port]) as process:
        until = time.monotonic() + _PATIENCE_S
        waiting: list[dict[str, object]] = []
        while len(waiting) < 2 or not all(row["on"] for row in waiting):
            assert time.monotonic() < until, waiting
            found = dump(process.pid, tmp_path, "--tree")
            waiting = [
                row for row in found.rows
                if row["wait"] == "collective" and "all_reduce" in str(row["waits_for"])
            ]  # fmt: skip
        shown = layerscope("dump", str(process.pid), "--tree", cwd=tmp_path)
    assert sorted(row["rank"] for row in waiting) == [0, 2]  # type: ignore[type-var]
    for row in waiting:
        (missing,) = row["on"]  # type: ignore[misc]
        assert missing["name"] == "rank 1"
        assert missing["how"] == "is not in it but at ranks.py:9 (late)"
    first = shown.stdout.splitlines()[0]
    assert first == (
        "Missing: rank 1 is not in it but at ranks.py:9 (late); ranks 0, 2 wait in all_reduce."
    )
    blocks = [line for line in shown.stdout.splitlines() if "of rank" in line]
    (together,) = [line for line in blocks if "all_reduce" in line]
    assert together.startswith("2 threads (")

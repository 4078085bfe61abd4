"""The examples of several processes, run as a user would run them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.recorded import GLOO_ABORT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 200
ATTEMPTS = 3
pytestmark = pytest.mark.slow


def run(command: list[str]) -> str:
    """What a command prints; it must succeed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment
        )
        if GLOO_ABORT not in done.stderr:
            break
        print("a rank aborted while it exited, as gloo does now and then: once more")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.stress
def test_the_way_workers_start_does_not_change_what_is_learned(program_python: str) -> None:
    printed = set()
    for words in (
        ["--workers", "0"],
        ["--start", "fork"],
        ["--start", "forkserver"],
        ["--persistent"],
    ):
        size = ["--images", "128", "--blurs", "1", "--epochs", "1"]
        out = run([program_python, str(EXAMPLES / "loader_workers.py"), *size, *words])
        printed.add(out.partition(",")[0])

    (line,) = printed
    assert re.fullmatch(r"epoch 1: loss 2\.\d{4}", line)


@pytest.mark.stress
def test_ranks_train_together_whichever_is_slow(program_python: str) -> None:
    weights = set()
    for slow in ("-1", "1"):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = str(one.getsockname()[1])
        out = run(
            [
                program_python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                "--master-port", port, str(EXAMPLES / "ddp_gloo.py"), "--steps", "5", "--slow-rank", slow,
            ]
        )  # fmt: skip
        found = re.findall(r"rank [01] of 2: \d+\.\d s, CPU \d+\.\d\d s, weights (\d+\.\d{4})", out)
        assert len(found) == 2
        weights.update(found)

    assert len(weights) == 1

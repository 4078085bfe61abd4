"""Runs programs that use `layerscope.profiler`, in the program's Python, and waits for what they
leave behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from layerscope.ingest.open import open_run
from layerscope.recording.run import Run
from tests.differential import environment
from tests.quick_torch import WITHOUT_COMPILER, quick
from tests.recorded import ROOT, TIMEOUT_S, Recorded

NAME = "program.py"
# A recorder is done within a second or two of the program's end.
PATIENCE_S = 60
# Three steps of a small network, the same each time it runs.
NETWORK = quick(
    WITHOUT_COMPILER
    + """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def train(steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()


train()
"""
)
# (name, kind, depth, parent) of every span of PyTorch and how often it is there: all but the times.
SHAPE = """
    SELECT s.name, s.kind, s.depth, p.name AS parent, count(*) AS n FROM spans s LEFT JOIN spans p ON s.parent = p.span
    WHERE NOT s.unfinished GROUP BY ALL ORDER BY ALL
"""


def variables(**changes: str | None) -> dict[str, str]:
    """The environment of a program that can import our library and nothing else of ours."""
    return environment(
        **{"PYTHONPATH": str(ROOT / "src"), "LAYERSCOPE_PYTHON": sys.executable, **changes}
    )


def run(
    python: str,
    text: str,
    cwd: Path,
    *words: str,
    arguments: Sequence[str] = (),
    **changes: str | None,
) -> subprocess.CompletedProcess[str]:
    """Run `text` as a program in `cwd`, with options of Python and arguments of its own; it must end
    with status 0.
    """
    (cwd / NAME).write_text(text)
    done = subprocess.run(
        [python, "-W", "always", *words, NAME, *arguments], cwd=cwd, env=variables(**changes), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def finished(path: Path) -> Run:
    """The recording at `path`, once its recorder is done with it."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if (path / "summary.txt").exists() and Run.open(path).info.state != "running":
            return open_run(path)
        time.sleep(0.05)
    raise AssertionError(f"{path} was never finished: {os.listdir(path.parent)}")


def recorded(path: Path) -> Recorded:
    """The finished recording at `path`, for questions."""
    return Recorded(finished(path), 0, "", "")


def written(file: Path) -> bytes:
    """What is in `file`, once it is there."""
    end = time.monotonic() + PATIENCE_S
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return file.read_bytes()

"""What is open on the threads of a program that is being recorded."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.dump.dumped import settled
from tests.recorded import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]
PROGRAM = """
import os, sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.fc(x)

def stays(module, inputs):
    with torch.profiler.record_function("stays here"):
        print(os.getpid(), flush=True)
        sys.stdin.readline()

net = Net()
net.fc.register_forward_pre_hook(stays)
net(torch.ones(2, 4))
"""


def test_modules_and_ranges_are_told(tmp_path: Path, program_python: str) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-m", "layerscope", "run", "-q", program_python, "program.py"]
    recorded = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert recorded.stdout is not None
    pid = int(recorded.stdout.readline())
    found = settled(pid, tmp_path, ["MainThread"])
    recorded.communicate("\n", timeout=60)
    assert recorded.returncode == 0
    spans = found.threads["MainThread"]["open"]
    assert [(span["kind"], span["name"]) for span in spans] == [
        ("module", "Net"),
        ("module", "Net.fc"),
        ("range", "stays here"),
    ]
    assert found.wait("MainThread") == "pipe"
    assert found.on("MainThread") == [Path(f"/proc/{os.getpid()}/comm").read_text().strip()]

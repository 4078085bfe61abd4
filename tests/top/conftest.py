"""A program that is being recorded while the tests of a file run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.recorded import ROOT

TIMEOUT_S = 60
# It says its pid, and computes and waits in functions of its own until it is ended.
PROGRAM = """
import os, sys, threading, time

def squares(count):
    return sum(number * number for number in range(count))

def computes():
    return squares(3000)

def waits():
    while True:
        time.sleep(0.01)

threading.Thread(target=waits, daemon=True, name="waiting").start()
print(os.getpid(), flush=True)
end = time.monotonic() + 300
while time.monotonic() < end:
    computes()
"""


@dataclass
class Running:
    """A program that runs, and the session that records it, if one does."""

    folder: Path
    pid: int
    process: subprocess.Popen[str]

    def end(self) -> None:
        """End the program; its session completes the recording."""
        os.kill(self.pid, signal.SIGTERM)
        self.process.wait(TIMEOUT_S)


def started(folder: Path, *before: str) -> Running:
    """The program, started by `before` and Python."""
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen([*before, sys.executable, "program.py"], cwd=folder, env=environment,
                               stdout=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    assert process.stdout is not None
    return Running(folder, int(process.stdout.readline()), process)


def recorded(folder: Path) -> Running:
    """The program under `layerscope run`, when something of it has been recorded."""
    run = (sys.executable, "-m", "layerscope", "run", "-q", "-o", "looping", "--")
    running = started(folder, *run)
    stacks = folder / "looping.layerscope" / "raw" / "stacks"
    until = time.monotonic() + TIMEOUT_S
    while not (stacks.exists() and stacks.stat().st_size > 10_000):
        assert time.monotonic() < until
        time.sleep(0.05)
    return running


def stopped(running: Running) -> None:
    if running.process.poll() is None:
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
    if running.process.stdout is not None:
        running.process.stdout.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A program that is being recorded as `looping`."""
    running = recorded(tmp_path_factory.mktemp("program"))
    yield running
    stopped(running)


@pytest.fixture
def short_program(tmp_path: Path) -> Iterator[Running]:
    """The same for one test, which may end it."""
    running = recorded(tmp_path)
    yield running
    stopped(running)


@pytest.fixture
def bare_program(tmp_path: Path) -> Iterator[Running]:
    """The same without layerscope."""
    running = started(tmp_path)
    yield running
    stopped(running)

"""A program that does what it is told line by line, under `layerscope run --paused`, and the
commands that steer its recording: no test of these has to hit a moment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.ingest.open import open_run
from tests.quick_torch import WITHOUT_COMPILER, quick
from tests.recorded import NO_STACKS, ROOT, Recorded, layerscope

PATIENCE_S = 120
# A line is the name of a function and a number; the answer is what it returns, or the time.
_LISTENS = """
import os, signal, subprocess, sys, threading, time

def clock(_):
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

def listen():
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        what, number = line.split()
        found = globals()[what](int(number))
        print(clock(0) if found is None else found, flush=True)
"""
PLAIN = (
    _LISTENS
    + """
def until(cpu_ns):
    end = time.process_time_ns() + cpu_ns
    while time.process_time_ns() < end:
        sum(range(1000))

def while_closed(ms):
    until(ms * 1_000_000)

def while_open(ms):
    until(ms * 1_000_000)

listen()
"""
)
# Steps of an optimizer, each in a range with its number, and the same range elsewhere.
TRAINS = (
    WITHOUT_COMPILER
    + _LISTENS
    + """
from torch.profiler import record_function
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
number = 0

def steps(count):
    global number
    for _ in range(count):
        with record_function(f"step {number}"):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        number += 1

def work(name):
    with record_function(name):
        torch.ones(8).mul(2)

def in_thread(at):
    thread = threading.Thread(target=work, args=[f"thread {at}"])
    thread.start()
    thread.join()

def in_child(at):
    child = os.fork()
    if not child:
        work(f"child {at}")
        os._exit(0)
    os.waitpid(child, 0)

def in_program(at):
    code = "import torch; from torch.profiler import record_function\\n" \\
        f"with record_function('program {at}'): torch.ones(8).mul(2)"
    subprocess.run([sys.executable, "-c", code], check=True)

listen()
"""
)


@dataclass
class Steered:
    """A program under `layerscope run --paused`; `pid` is its own."""

    folder: Path
    session: subprocess.Popen[str]
    pid: int

    @property
    def path(self) -> Path:
        """The recording."""
        return self.folder / "recording.layerscope"

    def tell(self, what: str, number: int = 0) -> int:
        """Have the program do something, to its end; its answer."""
        assert self.session.stdin is not None
        self.session.stdin.write(f"{what} {number}\n")
        self.session.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self.session.stdout is not None
        return self.session.stdout.readline()

    def command(self, *words: str) -> dict[str, Any]:
        """Run a command of layerscope that succeeds; the one row of its answer."""
        done = layerscope(*words, "--json", cwd=self.folder)
        assert (done.returncode, done.stderr) == (0, "")
        answer = json.loads(done.stdout)
        (row,) = answer["rows"]
        return dict(zip((column["name"] for column in answer["columns"]), row, strict=True))

    def end(self) -> Recorded:
        """Have the program end; the finished recording."""
        assert self.session.stdin is not None
        self.session.stdin.close()
        status = self.session.wait(PATIENCE_S)
        return Recorded(open_run(self.path), status, "", "")


@contextmanager
def standing_by(python: str, program: str, folder: Path) -> Iterator[Steered]:
    """The program by itself, with LAYERSCOPE_AUTOSTART=standby as where layerscope is installed."""
    line = (ROOT / "src" / "layerscope_autostart.pth").read_text()
    file = folder / "recording.py"
    file.write_text(f"exec({line!r})\n" + program)
    with subprocess.Popen(
        [python, str(file)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "LAYERSCOPE_AUTOSTART": "standby"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield Steered(folder, process, int(process.stdout.readline()))


@contextmanager
def steered(
    python: str, program: str, folder: Path, options: Sequence[str] = ("--paused", *NO_STACKS)
) -> Iterator[Steered]:
    """The program under `layerscope run` with these options; it has ended afterwards."""
    file = folder / "program.py"
    file.write_text(quick(program))
    words = ["run", "-q", "-o", "recording", *options, "--", python, str(file)]
    with subprocess.Popen(
        [sys.executable, "-m", "layerscope", *words],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdout is not None
        yield Steered(folder, session, int(session.stdout.readline()))

"""What `layerscope top` costs while it draws twice a second: its CPU time beside a network that it
watches from outside, and beside recorded programs that call many small operators.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
from measuring.intervals import median
from measuring.report import Report, at_most, interval
from measuring.runs import PROGRAMS, BenchmarkError, Setting, interleave

ONLY_WHEN_NAMED = True
BUDGET_S = 300.0
CNN = "cnn"
RATES = ("11000", "100000", "400000")
MOST = 3.0  # % of a core
# The recording has begun, and `top` has read what was there; a program with very many operators has
# had its part of the records chosen.
SETTLING_S, LOOKED_AT_S = 6.0, 10.0
ROWS, COLUMNS = 40, 120


def run(setting: Setting) -> Report:
    """Every program in turns."""
    report = Report("Watching a program: the CPU time of `layerscope top`")
    table = report.table(
        "In a terminal of 120x40, at two screens a second",
        "program",
        "runs",
        "top, % of a core",
        "with what records it, % of a core",
        "bytes a screen",
        "target",
    )
    arms = {kind: partial(watched, setting, kind) for kind in (CNN, *RATES)}
    found = interleave(arms, min(setting.pairs, 6), BUDGET_S)
    for kind, samples in found.items():
        top, beside, size = zip(*samples, strict=True)
        share = median(top)
        told = at_most(share.high, MOST, f"<= {MOST:g} %")
        called = "a CNN, attached" if kind == CNN else f"{int(kind):,} operators a second"
        whole = interval(median(beside), 2) if kind == CNN else ""
        shown = interval(share, 2), whole, f"{median(size).value:,.0f}", told
        table.add(called, str(len(samples)), *shown)
        report.data[called] = {"top": top, "beside": beside, "bytes": size}
    report.remarks.append(
        "Of some seconds in the middle of a run. A program that nobody records is recorded by top "
        "for itself; what that costs is in the next column. Of 100,000 operators a second and more "
        "only a part may be read: top says so on its screen."
    )
    return report


def watched(setting: Setting, kind: str) -> tuple[float, float, float]:
    """One program: the CPU time of `top` and of it with its children as % of a core, and bytes of a
    screen.
    """
    seconds = LOOKED_AT_S / (4 if setting.quick else 1)
    folder = Path(tempfile.mkdtemp(dir=setting.folder))
    script = [setting.program, str(PROGRAMS / "running.py"), kind]
    command = [*script, str(2 * SETTLING_S + seconds)]
    layerscope = [setting.tool, "-m", "layerscope"]
    if kind != CNN:
        command = [*layerscope, "run", "-q", "-o", "running", "--", *command]
    try:
        with started(setting, command, folder) as program:
            time.sleep(1.0)
            target = str(program.pid) if kind == CNN else "running"
            return looked_at([*layerscope, "top", target], setting, folder, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(setting: Setting, command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that is ready to work; it has ended afterwards."""
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env=setting.environment
    ) as program:
        assert program.stdout is not None
        if program.stdout.readline() != "ready\n":
            raise BenchmarkError("the program did not start")
        try:
            yield program
        finally:
            program.send_signal(signal.SIGTERM)


def looked_at(
    command: list[str], setting: Setting, folder: Path, seconds: float
) -> tuple[float, float, float]:
    """`top` in a terminal for so long, when it has settled."""
    terminal, ours = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**setting.environment, "TERM": "xterm-256color"}
    top = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=ours, stdout=ours, stderr=ours
    )
    try:
        read_for(terminal, SETTLING_S)
        if top.poll() is not None:
            raise BenchmarkError(f"top ended with status {top.returncode}")
        before, begun = cpu_s(top.pid), time.monotonic()
        written = read_for(terminal, seconds)
        after, ended = cpu_s(top.pid), time.monotonic()
    finally:
        if top.poll() is None:
            os.write(terminal, b"q")
            read_for(terminal, 1.0)
            top.terminate()
        top.wait()
        os.close(terminal)
        os.close(ours)
    share = 100 / (ended - begun)
    screens = 2 * (ended - begun)
    alone, beside = ((b - a) * share for a, b in zip(before, after, strict=True))
    return alone, beside, written / screens


def read_for(terminal: int, seconds: float) -> int:
    """Take what is written to the terminal; how many bytes."""
    until, count = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([terminal], [], [], left)
        if ready:
            count += len(os.read(terminal, 65536))
    return count


def cpu_s(pid: int) -> tuple[float, float]:
    """CPU time of a process, and of it with all that it has started."""
    process = psutil.Process(pid)
    alone = of_process(process)
    below = [of_process(child) for child in process.children(recursive=True)]
    return alone, alone + sum(below)


def of_process(process: psutil.Process) -> float:
    """CPU time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)

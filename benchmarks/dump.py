"""How long `layerscope dump` takes of a program with 500 threads, beside `py-spy dump`."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from measuring.intervals import median
from measuring.report import Report, at_most, interval
from measuring.runs import TIMEOUT_S, BenchmarkError, Setting, interleave

BUDGET_S = 120.0
MOST_S = 0.5
THREADS = 500
# Threads of ten kinds, which wait at different depths.
PROGRAM = f"""
import sys, threading
event = threading.Event()
def wait(depth):
    return wait(depth - 1) if depth else event.wait()
for number in range({THREADS} - 1):
    threading.Thread(target=wait, args=(number % 10,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def run(setting: Setting) -> Report:
    """All tools on the same program in turns."""
    report = Report(f"Dump: the stacks of {THREADS} threads")
    table = report.table(
        "Wall time from the command to its end", "command", "runs", "wall (s)", "target"
    )
    with started(setting) as program:
        ours = [setting.tool, "-m", "layerscope", "dump", str(program.pid)]
        arms = {
            "layerscope dump": partial(taken_s, ours),
            "layerscope dump --native": partial(taken_s, [*ours, "--native"]),
        }
        py_spy = Path(setting.program).with_name("py-spy")
        if shutil.which(str(py_spy)):
            theirs = [str(py_spy), "dump", "--pid", str(program.pid)]
            arms["py-spy dump"] = partial(taken_s, theirs)
            arms["py-spy dump --native"] = partial(taken_s, [*theirs, "--native"])
        found = interleave(arms, setting.pairs, BUDGET_S)
    for command, samples in found.items():
        wall = median(samples)
        told = at_most(wall.high, MOST_S, f"<= {MOST_S:g} s") if "layerscope" in command else ""
        table.add(command, str(len(samples)), interval(wall, 3), told)
        report.data[command] = {"wall_s": samples}
    report.remarks.append("py-spy dump tells no waits and no owners.")
    return report


@contextmanager
def started(setting: Setting) -> Iterator[subprocess.Popen[str]]:
    """The program, with all its threads."""
    with subprocess.Popen(
        [setting.program, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=setting.environment,
    ) as program:
        assert program.stdout is not None
        if program.stdout.readline() != "ready\n":
            raise BenchmarkError("the program did not start")
        yield program
        program.kill()


def taken_s(command: list[str]) -> float:
    """The wall time of this command, which ends well."""
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise BenchmarkError(f"{command[0]} ended with status {done.returncode}")
    return time.monotonic() - begun

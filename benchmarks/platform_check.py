"""Seconds and memory of `layerscope platform`, without anything and with `--measure`."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

import psutil
from measuring.intervals import median
from measuring.report import Report, Table, at_most, interval
from measuring.runs import Setting, execute

# Seconds from start to prompt, and bytes of all processes together.
TARGETS = {"platform": (1.0, 80e6), "platform --measure": (20.0, 400e6)}
RUNS = {"platform": 20, "platform --measure": 3}
QUICK_RUNS = {"platform": 2, "platform --measure": 1}
LOOK_S = 0.01


@dataclass(frozen=True)
class Cost:
    """Of one command with everything that it started: CPU, wall time, and the most resident memory
    at one time.
    """

    cpu_s: float
    wall_s: float
    most_bytes: int


def run(setting: Setting) -> Report:
    """Both commands, some times each."""
    report = Report("Platform: what looking at the machine costs")
    table = report.table(
        "A command", "what", "runs", "wall s", "target", "CPU s", "memory", "target"
    )
    for what, count in (QUICK_RUNS if setting.quick else RUNS).items():
        command = [setting.tool, "-m", "layerscope", *what.split()]
        row(report, table, what, [cost(setting, command) for _ in range(count)])
    report.remarks.append(
        "Medians with their intervals; against the target counts the upper end of the wall time. "
        "Memory: resident, of "
        f"all processes added up every {LOOK_S * 1000:.0f} ms, shared pages as often as they are "
        "mapped; the highest "
        "of all runs. The Python that is measured has PyTorch and NumPy."
    )
    return report


def row(report: Report, table: Table, what: str, costs: list[Cost]) -> None:
    """One command."""
    seconds, most = TARGETS[what]
    wall, cpu = (median([getattr(cost, name) for cost in costs]) for name in ("wall_s", "cpu_s"))
    memory = max(cost.most_bytes for cost in costs)
    table.add(
        what,
        str(len(costs)),
        interval(wall, 2),
        at_most(wall.high, seconds, f"<= {seconds:g} s"),
        interval(cpu, 2),
        f"{memory / 1e6:.0f} MB",
        at_most(memory, most, f"<= {most / 1e6:.0f} MB"),
    )
    report.data[what] = [vars(cost) for cost in costs]


def cost(setting: Setting, command: list[str]) -> Cost:
    """Run `command` to its end."""
    # `platform --measure` takes the Python of the active environment.
    active = f"VIRTUAL_ENV={setting.program.rpartition('/bin/')[0]}"
    watch = Memory()
    watch.start()
    try:
        done = execute(setting, ["env", active, *command])[0]
    finally:
        watch.ends.set()
        watch.join()
    return Cost(done.cpu_ns / 1e9, done.wall_ns / 1e9, watch.most_bytes)


class Memory(threading.Thread):
    """The most resident memory that all processes below this one had at one time, until `ends` is
    set.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ends = threading.Event()
        self.most_bytes = 0

    def run(self) -> None:
        """Look again and again."""
        while not self.ends.wait(LOOK_S):
            total = 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    total += process.memory_info().rss
            self.most_bytes = max(self.most_bytes, total)

"""Counts what the tests themselves cost, by folder and by file, printed at the end, so that growth
is seen.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest

FILES_SHOWN = 25


@dataclass
class Spent:
    """Seconds: of the clock, and of the CPUs by the test and the processes that it waited for."""

    tests: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, report: pytest.TestReport) -> None:
        """Count one phase of a test: its setup, its call or its teardown."""
        self.tests += report.when == "call"
        self.wall_s += report.duration
        self.cpu_s += getattr(report, "cpu_s", 0.0)


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have been waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class Pace:
    """A plugin of pytest: each worker measures its tests, the controller adds them up."""

    def __init__(self) -> None:
        self.by_folder: dict[str, Spent] = defaultdict(Spent)
        self.by_file: dict[str, Spent] = defaultdict(Spent)
        self.total = Spent()
        self.began_s = time.monotonic()
        self.before_s = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.before_s = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = cpu_seconds()
        report.cpu_s = now_s - self.before_s  # xdist sends attributes of a report along
        self.before_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.split("::")[0]
        for spent in (self.by_folder[folder_of(file)], self.by_file[file], self.total):
            spent.add(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("cost by folder")
        for line in table("folder", [*costliest(self.by_folder), ("all", self.total)]):
            terminalreporter.write_line(line)
        terminalreporter.section(f"cost by file, the {FILES_SHOWN} largest")
        for line in table("file", costliest(self.by_file)[:FILES_SHOWN]):
            terminalreporter.write_line(line)
        elapsed_s = time.monotonic() - self.began_s
        terminalreporter.write_line(f"elapsed {elapsed_s / 60:.1f} minutes")


def costliest(spent: dict[str, Spent]) -> list[tuple[str, Spent]]:
    """The rows by CPU time, the largest first."""
    return sorted(spent.items(), key=lambda row: -row[1].cpu_s)


def table(title: str, rows: list[tuple[str, Spent]]) -> list[str]:
    """The lines of a table of costs."""
    width = max([24, *(len(name) for name, _ in rows)]) + 1
    lines = [f"{title:<{width}}{'tests':>7}{'wall s':>10}{'CPU s':>10}"]
    for name, spent in rows:
        lines.append(f"{name:<{width}}{spent.tests:>7}{spent.wall_s:>10.1f}{spent.cpu_s:>10.1f}")
    return lines


def folder_of(file: str) -> str:
    """`cli` for tests/cli/test_run.py; a file that lies in tests itself is a row of its own."""
    return "/".join(PurePosixPath(file).parts[1:2])

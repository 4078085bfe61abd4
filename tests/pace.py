"""Counts what the tests themselves cost: wall and CPU time by folder, printed at the end, so that growth is seen."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest


@dataclass
class Spent:
    """Seconds: of the clock, and of the CPUs by the test and the processes that it waited for."""

    tests: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have been waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class Pace:
    """A plugin of pytest: each worker measures its tests, the controller adds them up."""

    def __init__(self) -> None:
        self.by_folder: dict[str, Spent] = defaultdict(Spent)
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
        spent = self.by_folder[folder_of(report.nodeid)]
        spent.tests += report.when == "call"
        spent.wall_s += report.duration
        spent.cpu_s += getattr(report, "cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = Spent()
        for spent in self.by_folder.values():
            total.tests += spent.tests
            total.wall_s += spent.wall_s
            total.cpu_s += spent.cpu_s
        terminalreporter.section("cost by folder")
        terminalreporter.write_line(f"{'folder':<24}{'tests':>7}{'wall s':>10}{'CPU s':>10}")
        rows = sorted(self.by_folder.items(), key=lambda row: -row[1].cpu_s)
        for folder, spent in [*rows, ("all", total)]:
            terminalreporter.write_line(f"{folder:<24}{spent.tests:>7}{spent.wall_s:>10.1f}{spent.cpu_s:>10.1f}")
        elapsed_s = time.monotonic() - self.began_s
        terminalreporter.write_line(f"elapsed {elapsed_s / 60:.1f} minutes")


def folder_of(nodeid: str) -> str:
    """`cli` for tests/cli/test_run.py; a file that lies in tests itself is a row of its own."""
    parts = PurePosixPath(nodeid.split("::")[0]).parts
    return "/".join(parts[1:2])

"""Fixtures of the hostile suite, and at the end of a run what could not be made hostile here, and
why.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile.case import Case

HERE = "tests/hostile/"


@pytest.fixture
def case(tmp_path: Path, program_python: str, native_agent: Path) -> Case:
    """A program in a folder of its own."""
    return Case(tmp_path, program_python)


@pytest.fixture
def public(case: Case) -> Case:
    """The same, in a folder where any user may write."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    case.everybody_writes = True
    # A test's folder lies in others that are its user's alone.
    for folder in [case.work.parent, *case.work.parent.parents][:4]:
        folder.chmod(folder.stat().st_mode | 0o055)
    case.work.parent.chmod(0o777)
    return case


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how far the rights of whoever runs the suite reached."""
    reports = {
        name: [
            report
            for report in terminalreporter.stats.get(name, [])
            if report.nodeid.startswith(HERE)
        ]
        for name in ("passed", "failed", "skipped")
    }
    tried = sum(map(len, reports.values()))
    if not tried:
        return
    terminalreporter.section("hostile suite")
    terminalreporter.line(
        f"{tried - len(reports['skipped'])} of {tried} settings could be made here"
    )
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports["skipped"])
    for reason, number in reasons.items():
        terminalreporter.line(f"  {number} skipped: {reason}")

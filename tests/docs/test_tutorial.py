"""The commands of the tutorial run as they stand there, and find what it says."""

from __future__ import annotations

import re

import pytest

from tests.attempts import once_in_three
from tests.docs.tutorials import Tutorial
from tests.recorded import ROOT


@pytest.mark.slow
@once_in_three
def test_the_tutorial_finds_the_line_and_proves_the_change(
    program_python: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tutorial")
    commands = Tutorial("tutorial.md", ("train.py",), folder, program_python)
    summary = commands.run().stderr
    assert "150 steps" in summary
    assert re.search(r"Training thread: .*sleeping", summary), summary
    first = commands.rows()[0]
    assert first["state"] == "sleep"
    assert first["line"].endswith("train.py:12")
    commands.run()  # the change
    commands.run()  # recorded again
    found = {row["name"]: row["verdict"] for row in commands.rows()}
    assert commands.left == []
    assert found["phase.loading"] == "faster"


def test_the_pages_link_to_each_other() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"

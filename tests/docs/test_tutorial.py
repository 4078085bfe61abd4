"""The commands of the tutorial run as they stand there, and find what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attempts import once_in_three
from tests.recorded import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text()


def fences(language: str) -> list[str]:
    """The texts in the fences of this language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE)


class Shell:
    """A folder with the program of the page, in which its commands run."""

    def __init__(self, folder: Path, program_python: str) -> None:
        self.folder = folder
        (program,) = fences("python")
        (folder / "train.py").write_text(program)
        path = os.pathsep.join([str(Path(program_python).parent), os.environ["PATH"]])
        self.variables = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(command)
        words = [sys.executable, "-m", *words] if words[0] == "layerscope" else words
        return subprocess.run(
            words, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=True
        )

    def rows(self, command: str) -> list[dict[str, Any]]:
        """What a command finds, as rows by column."""
        answer = json.loads(self.run(f"{command} --json").stdout)
        names = [column["name"] for column in answer["columns"]]
        return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


@pytest.mark.slow
@once_in_three
def test_the_tutorial_finds_the_line_and_proves_the_change(
    program_python: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shell = Shell(tmp_path_factory.mktemp("tutorial"), program_python)
    commands = [line for fence in fences("sh") for line in fence.splitlines()]
    record, waits, change, again, diff = commands
    summary = shell.run(record).stderr
    assert "150 steps" in summary
    assert re.search(r"Training thread: .*sleeping", summary), summary
    first = shell.rows(waits)[0]
    assert first["state"] == "sleep"
    assert first["line"].endswith("train.py:12")
    shell.run(change)
    shell.run(again)
    found = {row["name"]: row["verdict"] for row in shell.rows(diff)}
    assert found["phase.loading"] == "faster"


def test_the_pages_link_to_each_other() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"

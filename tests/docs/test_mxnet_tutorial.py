"""The commands of the tutorial about MXNet run as they stand there, and find what it says."""

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

from tests.recorded import ROOT, TIMEOUT_S

PAGE = (ROOT / "docs" / "tutorials" / "mxnet.md").read_text()
pytestmark = pytest.mark.slow


def fences(language: str) -> list[str]:
    """The texts in the fences of this language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE)


class Commands:
    """Runs the commands of the page one after the other, in a folder with its programs."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        for name, text in zip(("clock", "train", "custom"), fences("python"), strict=True):
            (folder / f"{name}.py").write_text(text)
        path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
        self.variables = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
        self.left = [line for fence in fences("sh") for line in fence.splitlines()]

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """The next one."""
        words = [sys.executable, "-m", *shlex.split(self.left.pop(0)), *more]
        return subprocess.run(
            words, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=True,
            timeout=TIMEOUT_S,
        )  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """What the next one finds, as rows by column."""
        answer = json.loads(self.run("--json").stdout)
        names = [column["name"] for column in answer["columns"]]
        return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


def test_the_tutorial_finds_what_it_says(
    mxnet2_python: str, native_agent: Path, tmp_path: Path
) -> None:
    commands = Commands(tmp_path, mxnet2_python)

    clock = commands.run()
    assert re.search(r"dot returned after .* ms\nits result was there after .* ms", clock.stdout)
    assert re.search(r"(?m)^_npi_dot .* 1$", clock.stderr)

    summary = commands.run().stderr
    assert "40 steps, the first" in summary
    assert "convolutions (oneDNN)" in summary
    assert "--granularity operator" in summary
    first = commands.rows()[0]
    assert (first["step"], first["rule"], first["warmup"]) == (0, "optimizer", True)

    lines = (tmp_path / "train.py").read_text().splitlines()
    found = {row["name"]: row for row in commands.rows()}
    assert (
        lines[int(found["ImperativeBulk"]["line"].rpartition(":")[2]) - 1].strip()
        == "loss.backward()"
    )
    assert found["Convolution"]["count"] == 80
    assert {(row["module"], row["count"]) for row in commands.rows()} == {
        ("HybridSequential.0", 40),
        ("HybridSequential.2", 40),
    }
    awaited = {row["awaited"]: row["calls"] for row in commands.rows()}
    assert awaited["_npi_mean"] == 40

    assert "MXNet executed each operator alone" in " ".join(commands.run().stderr.split())
    names = {row["name"] for row in commands.rows()}
    assert "_backward_Convolution" in names
    assert "ImperativeBulk" not in names

    commands.run()
    counts = {row["name"]: row["count"] for row in commands.rows()}
    assert counts["MyAddOne::pure_python"] == counts["_backward_MyAddOne::pure_python"] == 10
    assert counts["MyAddOne::_npi_add_scalar"] == 10
    assert commands.left == []
